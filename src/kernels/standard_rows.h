// Standard attention: what happens to the score matrix between its products, each a launch of its
// own that reads and writes the whole matrix:
//
//     mask        S = -inf where the query does not see the key
//     softmax     P = exp(S - m) / l, LSE = m + log l
//     dropout     P kept or dropped, into a copy: backward needs both
//     gradients   dS = P o (Z o dP - D), D = rowsum(dO o O) - dLSE, in P's place
//
// One CTA takes one row; a thread eight neighbouring columns at a time. Softmax reads a row once:
// it stays in shared memory between the passes, each thread's columns for itself; columns beyond
// the cache are read again.
#ifndef STROBE_SRC_KERNELS_STANDARD_ROWS_H_
#define STROBE_SRC_KERNELS_STANDARD_ROWS_H_

#include "kernels/standard_config.h"
#include "tile/element.h"
#include "tile/modifiers.h"
#include "tile/online_softmax.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::RowOperation;
using kernels::RowsConfig;
using kernels::RowsParams;

template <RowsConfig C>
struct StandardRows {
  using Params = RowsParams;
  using T = Element<C.dtype>;
  using Score = Element<C.scores>;
  using Eight = Vec<f32, 8>;
  static constexpr int kThreads = 128, kWarps = kThreads / 32;
  static constexpr int kMinCtas = 4;
  // Shared memory: warps' parts of two row reductions, then a row of S.
  static constexpr int kReductions = 2 * kWarps * 4;
  static constexpr int kColumnBytes = C.operation == RowOperation::kSoftmax ? 4 : 0;
  static constexpr int kSharedBytes = kReductions + kColumnBytes * kernels::kStandardCachedColumns;

  STROBE_DEVICE static void run(const Params& p) {
    StandardRows row(p);
    if constexpr (C.operation == RowOperation::kMask) row.mask();
    if constexpr (C.operation == RowOperation::kSoftmax) row.softmax();
    if constexpr (C.operation == RowOperation::kDropout) row.dropout();
    if constexpr (C.operation == RowOperation::kScoreGradients) row.gradients();
  }

 private:
  const Params& p;
  int b, h, i;
  core::Sequence seq;
  Score* s;
  T* probs;
  T* dropped;

  STROBE_DEVICE explicit StandardRows(const Params& params) : p(params) {
    const u32 rows = static_cast<u32>(p.a.lengths.seqlen_q);
    i = static_cast<int>(isa::cta_id() % rows);
    h = static_cast<int>(isa::cta_id() / rows % static_cast<u32>(p.a.heads));
    b = static_cast<int>(isa::cta_id() / rows / static_cast<u32>(p.a.heads));
    seq = sequence(p.a, b);
    const i64 at = static_cast<i64>(isa::cta_id()) * p.columns;
    s = static_cast<Score*>(p.scores) + at;
    probs = static_cast<T*>(p.p) + at;
    dropped = static_cast<T*>(p.dropped) + at;
  }

  // f(first column) for this thread's columns, eight by eight.
  template <class F>
  STROBE_DEVICE void for_columns(F f) const {
    for (int c = 8 * static_cast<int>(isa::thread_id()); c < p.columns; c += 8 * kThreads) f(c);
  }

  template <class E>
  STROBE_DEVICE static Eight load(const E* from, Here here = {}) {
    Eight x;
    if constexpr (sizeof(E) == 4) {
      const f32x4 lo = isa::ld_global(reinterpret_cast<const f32x4*>(from), here);
      const f32x4 hi = isa::ld_global(reinterpret_cast<const f32x4*>(from + 4), here);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] = e < 4 ? lo[e % 4] : hi[e % 4];
    } else {
      const auto v = isa::ld_global(reinterpret_cast<const Vec<E, 8>*>(from), here);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] = isa::to_float(v[e]);
    }
    return x;
  }
  template <class E>
  STROBE_DEVICE static void store(E* to, const Eight& x, Here here = {}) {
    if constexpr (sizeof(E) == 4) {
      isa::st_global(reinterpret_cast<f32x4*>(to), f32x4{x[0], x[1], x[2], x[3]}, here);
      isa::st_global(reinterpret_cast<f32x4*>(to + 4), f32x4{x[4], x[5], x[6], x[7]}, here);
    } else {
      const u32x4 packed = {isa::pack<E>(x[0], x[1]), isa::pack<E>(x[2], x[3]),
                            isa::pack<E>(x[4], x[5]), isa::pack<E>(x[6], x[7])};
      isa::st_global(reinterpret_cast<u32x4*>(to), packed, here);
    }
  }
  STROBE_DEVICE static u32 cache(int c) {
    return isa::shared_base() + kReductions + static_cast<u32>(c * 4);
  }
  STROBE_DEVICE static Eight cached(int c) {
    const auto lo = isa::ld_shared<f32x4>(cache(c));
    const auto hi = isa::ld_shared<f32x4>(cache(c + 4));
    return {lo[0], lo[1], lo[2], lo[3], hi[0], hi[1], hi[2], hi[3]};
  }
  STROBE_DEVICE static void keep(int c, const Eight& x) {
    isa::st_shared(cache(c), f32x4{x[0], x[1], x[2], x[3]});
    isa::st_shared(cache(c + 4), f32x4{x[4], x[5], x[6], x[7]});
  }

  // Over all threads; `which` names a place that no other reduction of the kernel uses.
  template <class F>
  STROBE_DEVICE static f32 reduce(f32 x, int which, F combine) {
    STROBE_UNROLL
    for (u32 lanes = 1; lanes < 32; lanes *= 2) x = combine(x, isa::shfl_xor(x, lanes));
    const u32 parts = isa::shared_base() + static_cast<u32>(which * kWarps * 4);
    if (isa::lane_id() == 0) isa::st_shared(parts + isa::thread_id() / 32 * 4, x);
    isa::cta_sync();
    x = isa::ld_shared<f32>(parts);
    STROBE_UNROLL
    for (u32 w = 1; w < kWarps; ++w) x = combine(x, isa::ld_shared<f32>(parts + w * 4));
    return x;
  }

  STROBE_DEVICE void mask() const {
    if (i >= seq.len_q) return;
    const core::Keys32 keys = seq.keys(i);
    for_columns([&](int c) {
      Eight x = load(s + c);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e)
        x[e] = c + e >= keys.begin && c + e < keys.end ? x[e] : -core::infinity();
      store(s + c, x);
    });
  }

  STROBE_DEVICE void softmax() const {
    f32* lse = p.lse ? p.lse + b * p.lse_stride.batch + (seq.q_begin + i) * p.lse_stride.seq +
                           h * p.lse_stride.head
                     : nullptr;
    if (i >= seq.len_q) {
      if (lse && isa::thread_id() == 0) isa::st_global(lse, -core::infinity());
      return;
    }
    // Columns beyond the sequence hold no key.
    const auto scores = [&](int c) {
      Eight x = load(s + c);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] = c + e < seq.len_k ? x[e] : -core::infinity();
      return x;
    };
    f32 m = -core::infinity();
    for_columns([&](int c) {
      const Eight x = scores(c);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) m = isa::max(m, x[e]);
      isa::count(core::Op::kMax, 8);
      if (c < p.cached) keep(c, x);
    });
    m = reduce(m, 0, [](f32 x, f32 y) { return isa::max(x, y); });
    const f32 reference = m == -core::infinity() ? 0.0f : m * kLog2e;
    const auto exponentials = [&](Eight x) {
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] = isa::ex2(isa::fma(x[e], kLog2e, -reference));
      isa::count(core::Op::kScale, 8);
      return x;
    };
    f32 l = 0;
    for_columns([&](int c) {
      const Eight x = exponentials(c < p.cached ? cached(c) : scores(c));
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) l += x[e];
      isa::count(core::Op::kSum, 8);
      if (c < p.cached) keep(c, x);
    });
    l = reduce(l, 1, [](f32 x, f32 y) { return x + y; });
    if (lse && isa::thread_id() == 0)
      isa::st_global(lse, l == 0.0f ? -core::infinity() : isa::fma(isa::lg2(l), kLn2, m));
    const f32 inverse = l == 0.0f ? 0.0f : isa::rcp(l);
    for_columns([&](int c) {
      Eight x = c < p.cached ? cached(c) : exponentials(scores(c));
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] *= inverse;
      isa::count(core::Op::kRescale, 8);
      store(probs + c, x);
    });
  }

  // The factors of columns c to c + 7.
  STROBE_DEVICE Eight dropout_factors(const RowDropout& row, int c) const {
    Eight z;
    const core::PhiloxBlock bits =
        core::dropout_bits(row.stream, static_cast<u32>(i), static_cast<u32>(c / 8));
    STROBE_UNROLL
    for (u32 e = 0; e < 8; ++e)
      z[static_cast<int>(e)] =
          core::dropout_draw(bits, e) >= p.a.mod.keep_threshold ? p.a.mod.keep_scale : 0.0f;
    isa::count(core::Op::kOther, 8);
    return z;
  }
  STROBE_DEVICE RowDropout row_dropout() const {
    return RowDropout(p.a.mod, static_cast<u64>(b) * p.a.heads + h, i);
  }

  STROBE_DEVICE void dropout() const {
    if (i >= seq.len_q) return;
    const RowDropout row = row_dropout();
    for_columns([&](int c) {
      Eight x = load(probs + c);
      const Eight z = dropout_factors(row, c);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] *= z[e];
      store(dropped + c, x);
    });
  }

  // D as docs/numerics.md defines it: rowsum(dO o O) - dLSE, which is rowsum(P o Z o dP) - dLSE.
  STROBE_DEVICE f32 row_term() const {
    static_assert(kThreads >= 128, "a thread per column of O");
    const int col = static_cast<int>(isa::thread_id());
    f32 d = 0;
    if (col < p.a.head_dim_v) {
      const auto at = [&](const TensorArg& t) {
        return static_cast<const T*>(t.data) + b * t.stride.batch +
               (seq.q_begin + i) * t.stride.seq + h * t.stride.head + col;
      };
      d = isa::to_float(isa::ld_global(at(p.o))) * isa::to_float(isa::ld_global(at(p.dout)));
      isa::count(core::Op::kOther, 2);
    }
    d = reduce(d, 0, [](f32 x, f32 y) { return x + y; });
    if (p.dlse)
      d -= isa::ld_global(p.dlse + b * p.dlse_stride.batch + (seq.q_begin + i) * p.dlse_stride.seq +
                          h * p.dlse_stride.head);
    return d;
  }

  STROBE_DEVICE void gradients() const {
    if (i >= seq.len_q) return;
    const f32 d = row_term();
    const bool drops = p.a.mod.keep_threshold != 0;
    const RowDropout row = row_dropout();
    for_columns([&](int c) {
      Eight x = load(probs + c);
      const Eight dp = load(s + c);
      Eight z = {};
      if (drops) z = dropout_factors(row, c);
      STROBE_UNROLL
      for (int e = 0; e < 8; ++e) x[e] *= (drops ? z[e] * dp[e] : dp[e]) - d;
      isa::count(core::Op::kOther, 16);
      store(probs + c, x);
    });
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_STANDARD_ROWS_H_
