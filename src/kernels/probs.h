// Probabilities of chosen query rows, P = exp(S - LSE) before dropout: the attention weights that
// the fast kernels never store. One warp per row, one lane per key.
#ifndef STROBE_SRC_KERNELS_PROBS_H_
#define STROBE_SRC_KERNELS_PROBS_H_

#include "kernels/oracle_row.h"

namespace strobe::STROBE_TARGET {

// Chosen row n of head h, as item n of [batch, heads, num_rows]; varlen: [heads, num_rows]. Rows
// that lie nowhere hold nothing.
struct ChosenRow {
  core::Sequence seq;
  int b, h;
  int index;  // in its sequence
  bool holds;

  STROBE_DEVICE ChosenRow(const RowParams& p, u64 item) {
    const auto num_rows = static_cast<u64>(p.num_rows), heads = static_cast<u64>(p.a.heads);
    const i64 row = isa::ld_global(p.rows + item % num_rows);
    const int* cu = p.a.lengths.cu_q;
    h = static_cast<int>(item / num_rows % heads);
    b = cu ? sequence_holding(p.a, cu, row) : static_cast<int>(item / num_rows / heads);
    holds = b < p.a.batch;
    seq = holds ? sequence(p.a, b) : core::Sequence{};
    const i64 in_sequence = row - seq.q_begin;
    holds = holds && in_sequence >= 0 && in_sequence < seq.len_q;
    index = static_cast<int>(in_sequence);
  }
};

// items: rows of the output.
template <class T>
struct Probs {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const ChosenRow row(p, n);
      const ScoreRule<R> rule = row_rule<T>(p);
      const HeadScores<T> scores(p.a, rule, row.holds ? row.b : 0, row.h, row.seq.band.offset);
      const i64 t = row.seq.q_begin + row.index;
      const R none = minus_infinity<R>();
      const R lse = row.holds ? isa::ld_global(static_cast<const R*>(p.lse) +
                                               index_of(p.lse_stride, row.b, t, row.h))
                              : none;
      const T* q = element_at<T>(p.q, row.b, t, row.h);
      R* out = static_cast<R*>(p.probs) + static_cast<i64>(n) * p.out_keys;
      const int kv_head = row.h / (p.a.heads / p.a.kv_heads);
      for (int j = static_cast<int>(isa::lane_id()); j < p.out_keys; j += 32) {
        R x = 0;
        if (lse != none && j < row.seq.len_k && in_band(row.seq, row.index, j)) {
          const T* k = element_at<T>(p.k, row.b, row.seq.k_begin + j, kv_head);
          const R s = scores.score(dot(q, k, p.a.head_dim), row.index, j);
          if (s != none) x = exp_of(s - lse);
        }
        isa::st_global(out + j, x);
      }
    });
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_PROBS_H_
