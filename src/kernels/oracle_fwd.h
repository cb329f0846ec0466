// Float64 attention, forward: serves dtype f64 on GPUs and is the oracle of GPU checks. One warp
// per query row; per 32 keys each lane has one key's score, then each lane has every 32nd column of
// O. Plain arithmetic, no tiles: slow, and easy to trust.
#ifndef STROBE_SRC_KERNELS_ORACLE_FWD_H_
#define STROBE_SRC_KERNELS_ORACLE_FWD_H_

#include "kernels/oracle_row.h"

namespace strobe::STROBE_TARGET {

// items: rows of q, of all heads and sequences.
template <class T>
struct OracleFwd {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1;
  static constexpr int kSharedBytes = kRowWarps * WarpValues<R>::kBytes;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const RowItem item(p.a, false, n);
      row(p, item);
    });
  }

 private:
  STROBE_DEVICE static void row(const Params& p, const RowItem& item) {
    const int dv = p.a.head_dim_v, kv_head = item.h / (p.a.heads / p.a.kv_heads);
    const WarpValues<R> values;
    const R none = minus_infinity<R>();
    const R sink = p.sinks ? isa::ld_global(static_cast<const R*>(p.sinks) + item.h) : none;
    R m = sink, l = sink == none ? 0 : 1;
    LaneSums<T> o;
    const ScoreRule<R> rule = row_rule<T>(p);
    const HeadScores<T> scores(p.a, rule, item.holds ? item.b : 0, item.h, item.seq.band.offset);
    const T* q = element_at<T>(p.q, item.b, item.row, item.h);
    const int keys = item.holds ? item.seq.len_k : 0;
    for (int key0 = 0; key0 < keys; key0 += 32) {
      const int key = key0 + static_cast<int>(isa::lane_id());
      R s = none;
      if (key < keys && in_band(item.seq, item.index, key)) {
        const T* k = element_at<T>(p.k, item.b, item.seq.k_begin + key, kv_head);
        s = scores.score(dot(q, k, p.a.head_dim), item.index, key);
      }
      const R top = warp_max(s > m ? s : m);
      const R reference = top == none ? 0 : top;
      const R rescale = exp_of(m - reference), x = s == none ? 0 : exp_of(s - reference);
      m = top;
      l = l * rescale + warp_sum(x);
      o.scale(rescale);
      values.put(0, x == 0 ? x : x * scores.keep_factor(item.index, key));
      values.share();
      for (int n = 0; n < 32 && key0 + n < keys; ++n) {
        const R weight = values.get(0, n);
        if (weight == 0) continue;  // perhaps a key that the row may not see
        o.add(weight, element_at<T>(p.v, item.b, item.seq.k_begin + key0 + n, kv_head), dv);
      }
      values.share();
    }
    const bool nothing = !item.holds || l == 0;
    o.store(element_at<T>(p.o, item.b, item.row, item.h), nothing ? 0 : 1 / l, dv);
    if (p.lse && isa::lane_id() == 0) {
      isa::st_global(static_cast<R*>(p.lse) + index_of(p.lse_stride, item.b, item.row, item.h),
                     nothing ? none : static_cast<R>(m + core::log64(l)));
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_ORACLE_FWD_H_
