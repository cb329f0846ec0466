#include <vector>

#include "reference/dropout.h"
#include "reference/passes.h"
#include "reference/scores.h"

namespace strobe::reference {
namespace {

struct Scratch {
  std::vector<double> q, k, v, o;  // one row, all keys, all keys, one row
  std::vector<double> s;           // [len_k]

  Scratch(const strobe_problem& p, std::int64_t max_len_k)
      : q(p.head_dim),
        k(max_len_k * p.head_dim),
        v(max_len_k * p.head_dim_v),
        o(p.head_dim_v),
        s(max_len_k) {}
};

// O and LSE of every query of one head; scratch holds its K and V.
void forward_head(const strobe_problem& p, const strobe_run_args& args, const Sequence& seq,
                  std::int64_t head, Scratch& scratch) {
  const Scores scores(p, args, seq, head);
  const Dropout dropout(p, args, seq.index, head);
  for (std::int64_t i = 0; i < seq.len_q; ++i) {
    const std::int64_t row = seq.q_begin + i;
    load_rows(args.q, p.dtype, p.q_strides, seq.batch, row, 1, head, p.head_dim, scratch.q.data());
    scores.row(i, scratch.q.data(), scratch.k.data(), scratch.s.data(), nullptr);
    const ExpSum total = exp_sum(scratch.s.data(), seq.len_k, scores.sink());
    scratch.o.assign(p.head_dim_v, 0);
    for (std::int64_t j = 0; j < seq.len_k; ++j) {
      const double s = scratch.s[j];
      if (s == -kInfinity) continue;
      add_scaled(total.share(s) * dropout.factor(i, j), &scratch.v[j * p.head_dim_v], p.head_dim_v,
                 scratch.o.data());
    }
    store_rows(args.o, p.dtype, p.o_strides, seq.batch, row, 1, head, p.head_dim_v,
               scratch.o.data());
    if (args.lse) {
      store(args.lse, aux_dtype(p.dtype), offset_of(p.lse_strides, seq.batch, row, head),
            total.log());
    }
  }
}

}  // namespace

void forward(const strobe_problem& p, const strobe_run_args& args) {
  const std::vector<Sequence> all = sequences(p, args);
  const std::int64_t max_len_k = longest_k(all);
  Scratch scratch(p, max_len_k);

  // What no sequence holds keeps these values.
  fill(args.o, p.dtype, p.o_strides, q_extent(p), p.heads, p.head_dim_v, 0);
  fill(args.lse, aux_dtype(p.dtype), p.lse_strides, q_extent(p), p.heads, 1, -kInfinity);

  const std::int64_t group = p.heads / p.kv_heads;
  for (const Sequence& seq : all) {
    for (std::int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      load_rows(args.k, p.dtype, p.k_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                p.head_dim, scratch.k.data());
      load_rows(args.v, p.dtype, p.v_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                p.head_dim_v, scratch.v.data());
      for (std::int64_t g = 0; g < group; ++g) {
        forward_head(p, args, seq, kv_head * group + g, scratch);
      }
    }
  }
}

}  // namespace strobe::reference
