#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "reference/dropout.h"
#include "reference/passes.h"
#include "reference/scores.h"

namespace strobe::reference {
namespace {

struct Scratch {
  std::vector<double> q, o, dout, dq;  // one row each
  std::vector<double> k, v, dk, dv;    // every key of one KV head
  std::vector<double> s, slope;        // [len_k]
  std::vector<double> dbias;           // of the whole problem, contiguous
  std::vector<double> dsinks;          // [heads]

  Scratch(const strobe_problem& p, const strobe_run_args& args, std::int64_t max_len_k)
      : q(p.head_dim),
        o(p.head_dim_v),
        dout(p.head_dim_v),
        dq(p.head_dim),
        k(max_len_k * p.head_dim),
        v(max_len_k * p.head_dim_v),
        dk(max_len_k * p.head_dim),
        dv(max_len_k * p.head_dim_v),
        s(max_len_k),
        slope(max_len_k),
        dbias(args.dbias ? p.bias.batch * p.bias.heads * p.bias.seqlen_q * p.bias.seqlen_k : 0),
        dsinks(args.dsinks ? p.heads : 0) {}
};

// D_i = sum_d dO O - dLSE_i; scratch holds dO and O of the row.
double delta(const strobe_problem& p, const strobe_run_args& args, const Sequence& seq,
             std::int64_t row, std::int64_t head, const Scratch& scratch) {
  const double sum = dot(scratch.dout.data(), scratch.o.data(), p.head_dim_v);
  if (args.dlse == nullptr) return sum;
  return sum - load(args.dlse, aux_dtype(p.dtype), offset_of(p.dlse_strides, seq.batch, row, head));
}

// dQ of one query, and what it adds to dK, dV, dBias and dSink. LSE is not -inf.
void backward_row(const strobe_problem& p, const strobe_run_args& args, const Sequence& seq,
                  std::int64_t i, std::int64_t head, double lse, const Scores& scores,
                  const Dropout& dropout, Scratch& scratch) {
  const std::int64_t row = seq.q_begin + i;
  load_rows(args.q, p.dtype, p.q_strides, seq.batch, row, 1, head, p.head_dim, scratch.q.data());
  load_rows(args.o, p.dtype, p.o_strides, seq.batch, row, 1, head, p.head_dim_v, scratch.o.data());
  load_rows(args.dout, p.dtype, p.dout_strides, seq.batch, row, 1, head, p.head_dim_v,
            scratch.dout.data());
  const double D = delta(p, args, seq, row, head, scratch);
  if (args.dsinks) scratch.dsinks[head] -= std::exp(scores.sink() - lse) * D;

  scores.row(i, scratch.q.data(), scratch.k.data(), scratch.s.data(), scratch.slope.data());
  for (std::int64_t j = 0; j < seq.len_k; ++j) {
    if (scratch.s[j] == -kInfinity) continue;
    const double P = std::exp(scratch.s[j] - lse);
    const double Z = dropout.factor(i, j);
    const double dP = dot(scratch.dout.data(), &scratch.v[j * p.head_dim_v], p.head_dim_v);
    const double dS = P * (Z * dP - D);
    if (args.dbias) scratch.dbias[scores.dbias_index(i, j)] += dS;
    const double dot_gradient = p.scale * dS * scratch.slope[j];  // of q.k
    add_scaled(Z * P, scratch.dout.data(), p.head_dim_v, &scratch.dv[j * p.head_dim_v]);
    add_scaled(dot_gradient, &scratch.k[j * p.head_dim], p.head_dim, scratch.dq.data());
    add_scaled(dot_gradient, scratch.q.data(), p.head_dim, &scratch.dk[j * p.head_dim]);
  }
}

void backward_head(const strobe_problem& p, const strobe_run_args& args, const Sequence& seq,
                   std::int64_t head, Scratch& scratch) {
  const Scores scores(p, args, seq, head);
  const Dropout dropout(p, args, seq.index, head);
  for (std::int64_t i = 0; i < seq.len_q; ++i) {
    const std::int64_t row = seq.q_begin + i;
    const double lse =
        load(args.lse, aux_dtype(p.dtype), offset_of(p.lse_strides, seq.batch, row, head));
    scratch.dq.assign(p.head_dim, 0);
    if (lse != -kInfinity) backward_row(p, args, seq, i, head, lse, scores, dropout, scratch);
    store_rows(args.dq, p.dtype, p.dq_strides, seq.batch, row, 1, head, p.head_dim,
               scratch.dq.data());
  }
}

}  // namespace

void backward(const strobe_problem& p, const strobe_run_args& args) {
  const std::vector<Sequence> all = sequences(p, args);
  const std::int64_t max_len_k = longest_k(all);
  Scratch scratch(p, args, max_len_k);

  // What no sequence holds keeps these values.
  fill(args.dq, p.dtype, p.dq_strides, q_extent(p), p.heads, p.head_dim, 0);
  fill(args.dk, p.dtype, p.dk_strides, k_extent(p), p.kv_heads, p.head_dim, 0);
  fill(args.dv, p.dtype, p.dv_strides, k_extent(p), p.kv_heads, p.head_dim_v, 0);

  const std::int64_t group = p.heads / p.kv_heads;
  for (const Sequence& seq : all) {
    for (std::int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      load_rows(args.k, p.dtype, p.k_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                p.head_dim, scratch.k.data());
      load_rows(args.v, p.dtype, p.v_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                p.head_dim_v, scratch.v.data());
      std::fill(scratch.dk.begin(), scratch.dk.end(), 0);
      std::fill(scratch.dv.begin(), scratch.dv.end(), 0);
      for (std::int64_t g = 0; g < group; ++g) {
        backward_head(p, args, seq, kv_head * group + g, scratch);
      }
      store_rows(args.dk, p.dtype, p.dk_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                 p.head_dim, scratch.dk.data());
      store_rows(args.dv, p.dtype, p.dv_strides, seq.batch, seq.k_begin, seq.len_k, kv_head,
                 p.head_dim_v, scratch.dv.data());
    }
  }
  for (std::size_t n = 0; n < scratch.dbias.size(); ++n) {
    store(args.dbias, aux_dtype(p.dtype), n, scratch.dbias[n]);
  }
  for (std::size_t h = 0; h < scratch.dsinks.size(); ++h) {
    store(args.dsinks, aux_dtype(p.dtype), h, scratch.dsinks[h]);
  }
}

}  // namespace strobe::reference
