// Float64 attention, backward, one kernel per gradient, each owning its outputs:
//
//     OracleDq      one warp per query row, over the keys
//     OracleDkv     one warp per key row, over the queries of all heads of the group
//     OracleDbias   one lane per element of dBias, over what it broadcasts to
//     OracleDsink   one warp per head, over its queries
#ifndef STROBE_SRC_KERNELS_ORACLE_BWD_H_
#define STROBE_SRC_KERNELS_ORACLE_BWD_H_

#include "kernels/oracle_row.h"

namespace strobe::STROBE_TARGET {

// One head of one sequence: what backward recomputes of a (query, key) pair.
template <class T>
struct PairGradients {
  using R = Real<T>;
  const RowParams& p;
  const core::Sequence& seq;
  const int b, h, kv_head;
  const ScoreRule<R> rule;
  const HeadScores<T> scores;

  STROBE_DEVICE PairGradients(const RowParams& params, const core::Sequence& s, int batch, int head)
      : p(params),
        seq(s),
        b(batch),
        h(head),
        kv_head(head / (params.a.heads / params.a.kv_heads)),
        rule(row_rule<T>(params)),
        scores(params.a, rule, batch, head, s.band.offset) {}

  STROBE_DEVICE const T* query_row(const TensorArg& t, int i) const {
    return element_at<T>(t, b, seq.q_begin + i, h);
  }
  STROBE_DEVICE const T* key_row(const TensorArg& t, int j) const {
    return element_at<T>(t, b, seq.k_begin + j, kv_head);
  }
  STROBE_DEVICE R lse(int i) const {
    return isa::ld_global(static_cast<const R*>(p.lse) +
                          index_of(p.lse_stride, b, seq.q_begin + i, h));
  }
  STROBE_DEVICE R delta(int i) const {
    const R d = dot(query_row(p.dout, i), query_row(p.o, i), p.a.head_dim_v);
    if (!p.dlse) return d;
    return d - isa::ld_global(static_cast<const R*>(p.dlse) +
                              index_of(p.dlse_stride, b, seq.q_begin + i, h));
  }

  struct Pair {
    R zp, ds, slope;  // Z P, dS, derivative of the softcap; all 0 where the query sees no such key
  };
  STROBE_DEVICE Pair pair(int i, int j, R lse_i, R delta_i) const {
    const R none = minus_infinity<R>();
    if (lse_i == none || !in_band(seq, i, j)) return {0, 0, 0};
    R slope = 1;
    const R s = scores.score(dot(query_row(p.q, i), key_row(p.k, j), p.a.head_dim), i, j, &slope);
    if (s == none) return {0, 0, 0};
    const R probability = exp_of(s - lse_i), z = scores.keep_factor(i, j);
    const R dp = dot(query_row(p.dout, i), key_row(p.v, j), p.a.head_dim_v);
    return {z * probability, probability * (z * dp - delta_i), slope};
  }
};

// items: rows of q, of all heads and sequences.
template <class T>
struct OracleDq {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1;
  static constexpr int kSharedBytes = kRowWarps * WarpValues<R>::kBytes;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const RowItem item(p.a, false, n);
      LaneSums<T> dq;
      if (item.holds) row(p, item, dq);
      dq.store(element_at<T>(p.dq, item.b, item.row, item.h), static_cast<R>(p.scale),
               p.a.head_dim);
    });
  }

 private:
  STROBE_DEVICE static void row(const Params& p, const RowItem& item, LaneSums<T>& dq) {
    const PairGradients<T> pairs(p, item.seq, item.b, item.h);
    const WarpValues<R> values;
    const R lse = pairs.lse(item.index);
    if (lse == minus_infinity<R>()) return;
    const R delta = pairs.delta(item.index);
    for (int key0 = 0; key0 < item.seq.len_k; key0 += 32) {
      const int key = key0 + static_cast<int>(isa::lane_id());
      typename PairGradients<T>::Pair x = {};
      if (key < item.seq.len_k) x = pairs.pair(item.index, key, lse, delta);
      values.put(0, x.ds * x.slope);
      values.share();
      for (int n = 0; n < 32 && key0 + n < item.seq.len_k; ++n) {
        const R weight = values.get(0, n);
        if (weight != 0) dq.add(weight, pairs.key_row(p.k, key0 + n), p.a.head_dim);
      }
      values.share();
    }
  }
};

// items: rows of k, of all KV heads and sequences.
template <class T>
struct OracleDkv {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1;
  static constexpr int kSharedBytes = kRowWarps * WarpValues<R>::kBytes;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const RowItem item(p.a, true, n);
      LaneSums<T> dk, dv;
      const int group = p.a.heads / p.a.kv_heads;
      for (int h = item.h * group; item.holds && h < (item.h + 1) * group; ++h) {
        head(p, item, h, dk, dv);
      }
      dk.store(element_at<T>(p.dk, item.b, item.row, item.h), static_cast<R>(p.scale),
               p.a.head_dim);
      dv.store(element_at<T>(p.dv, item.b, item.row, item.h), 1, p.a.head_dim_v);
    });
  }

 private:
  STROBE_DEVICE static void head(const Params& p, const RowItem& item, int h, LaneSums<T>& dk,
                                 LaneSums<T>& dv) {
    const PairGradients<T> pairs(p, item.seq, item.b, h);
    const WarpValues<R> values;
    for (int q0 = 0; q0 < item.seq.len_q; q0 += 32) {
      const int q = q0 + static_cast<int>(isa::lane_id());
      typename PairGradients<T>::Pair x = {};
      if (q < item.seq.len_q && in_band(item.seq, q, item.index)) {
        x = pairs.pair(q, item.index, pairs.lse(q), pairs.delta(q));
      }
      values.put(0, x.zp);
      values.put(1, x.ds * x.slope);
      values.share();
      for (int n = 0; n < 32 && q0 + n < item.seq.len_q; ++n) {
        const R zp = values.get(0, n), ds = values.get(1, n);
        if (zp != 0) dv.add(zp, pairs.query_row(p.dout, q0 + n), p.a.head_dim_v);
        if (ds != 0) dk.add(ds, pairs.query_row(p.q, q0 + n), p.a.head_dim);
      }
      values.share();
    }
  }
};

// items: elements of dBias, 32 keys of one row each.
template <class T>
struct OracleDbias {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    const u64 key_items = static_cast<u64>(ceil_div(p.bias_keys, 32));
    for_each_item(p.items, [&](u64 n) {
      const int key = static_cast<int>(n % key_items * 32 + isa::lane_id());
      const u64 row = n / key_items;
      if (key >= p.bias_keys) return;
      isa::st_global(static_cast<R*>(p.dbias) + static_cast<i64>(row) * p.bias_keys + key,
                     sum(p, row, key));
    });
  }

 private:
  STROBE_DEVICE static R sum(const Params& p, u64 row, int key) {
    const auto rows = static_cast<u64>(p.bias_rows), heads = static_cast<u64>(p.bias_heads);
    const int i0 = static_cast<int>(row % rows), h0 = static_cast<int>(row / rows % heads);
    const int b0 = static_cast<int>(row / rows / heads);
    R total = 0;
    for (int b = b0; b < (p.bias_batch == 1 ? p.a.batch : b0 + 1); ++b) {
      const core::Sequence seq = sequence(p.a, b);
      if (key >= seq.len_k) continue;
      const int i_end = rows == 1 ? seq.len_q : core::min(seq.len_q, i0 + 1);
      for (int h = h0; h < (heads == 1 ? p.a.heads : h0 + 1); ++h) {
        const PairGradients<T> pairs(p, seq, b, h);
        for (int i = i0; i < i_end; ++i) {
          if (in_band(seq, i, key)) total += pairs.pair(i, key, pairs.lse(i), pairs.delta(i)).ds;
        }
      }
    }
    return total;
  }
};

// items: heads.
template <class T>
struct OracleDsink {
  using Params = RowParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const int h = static_cast<int>(n);
      const R sink = isa::ld_global(static_cast<const R*>(p.sinks) + h);
      R sum = 0;
      for (int b = 0; b < p.a.batch; ++b) {
        const core::Sequence seq = sequence(p.a, b);
        const PairGradients<T> pairs(p, seq, b, h);
        for (int i = static_cast<int>(isa::lane_id()); i < seq.len_q; i += 32) {
          const R lse = pairs.lse(i);
          if (lse != minus_infinity<R>()) sum -= exp_of(sink - lse) * pairs.delta(i);
        }
      }
      sum = warp_sum(sum);
      if (isa::lane_id() == 0) isa::st_global(static_cast<R*>(p.dsinks) + h, sum);
    });
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_ORACLE_BWD_H_
