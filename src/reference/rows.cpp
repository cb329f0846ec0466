// Operations on chosen query rows: probabilities and the dropout mask.
#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/dropout.h"
#include "reference/passes.h"
#include "reference/scores.h"

namespace strobe::reference {
namespace {

// Calls use(seq, i, n) for each chosen row n that is row i of sequence seq. A row counts from the
// start of every sequence, or, varlen, from the start of q, so that it lies in one sequence at
// most.
template <class Use>
void for_each_chosen(const strobe_problem& p, const strobe_run_args& args,
                     const std::vector<Sequence>& all, Use use) {
  for (const Sequence& seq : all) {
    for (std::int64_t n = 0; n < p.num_rows; ++n) {
      const std::int64_t i = args.rows[n] - seq.q_begin;  // q_begin is 0 unless varlen
      if (i >= 0 && i < seq.len_q) use(seq, i, n);
    }
  }
}

// Element (batch, head, n, 0) of probs and keep_mask.
std::int64_t output_row(const strobe_problem& p, std::int64_t batch, std::int64_t head,
                        std::int64_t n) {
  return ((batch * p.heads + head) * p.num_rows + n) * p.seqlen_k;
}

std::int64_t output_size(const strobe_problem& p) {
  return q_extent(p).batch * p.heads * p.num_rows * p.seqlen_k;
}

}  // namespace

void probs(const strobe_problem& p, const strobe_run_args& args) {
  const std::vector<Sequence> all = sequences(p, args);
  const std::int64_t max_len_k = longest_k(all);
  std::vector<double> q(p.head_dim), k(max_len_k * p.head_dim), s(max_len_k);

  const strobe_dtype aux = aux_dtype(p.dtype);
  for (std::int64_t e = 0; e < output_size(p); ++e) store(args.probs, aux, e, 0);
  for_each_chosen(p, args, all, [&](const Sequence& seq, std::int64_t i, std::int64_t n) {
    const std::int64_t row = seq.q_begin + i;
    for (std::int64_t head = 0; head < p.heads; ++head) {
      const double lse = load(args.lse, aux, offset_of(p.lse_strides, seq.batch, row, head));
      if (lse == -kInfinity) continue;
      load_rows(args.q, p.dtype, p.q_strides, seq.batch, row, 1, head, p.head_dim, q.data());
      load_rows(args.k, p.dtype, p.k_strides, seq.batch, seq.k_begin, seq.len_k,
                head / (p.heads / p.kv_heads), p.head_dim, k.data());
      Scores(p, args, seq, head).row(i, q.data(), k.data(), s.data(), nullptr);
      for (std::int64_t j = 0; j < seq.len_k; ++j) {
        if (s[j] == -kInfinity) continue;
        store(args.probs, aux, output_row(p, seq.batch, head, n) + j, std::exp(s[j] - lse));
      }
    }
  });
}

void keep_mask(const strobe_problem& p, const strobe_run_args& args) {
  const std::vector<Sequence> all = sequences(p, args);
  std::fill_n(args.keep_mask, output_size(p), std::uint8_t{0});
  for_each_chosen(p, args, all, [&](const Sequence& seq, std::int64_t i, std::int64_t n) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      const Dropout dropout(p, args, seq.index, head);
      for (std::int64_t j = 0; j < seq.len_k; ++j) {
        args.keep_mask[output_row(p, seq.batch, head, n) + j] = dropout.kept(i, j);
      }
    }
  });
}

}  // namespace strobe::reference
