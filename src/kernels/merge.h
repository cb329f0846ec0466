// Merging partial results over disjoint keys by LSE (docs/numerics.md): LSE = log sum exp(LSE_n),
// O = sum exp(LSE_n - LSE) O_n. A part with LSE_n = -inf is left out and a part alone has weight 1
// exactly, so that merging with nothing changes no bit. One warp per row, in a fixed order.
#ifndef STROBE_SRC_KERNELS_MERGE_H_
#define STROBE_SRC_KERNELS_MERGE_H_

#include "kernels/oracle_row.h"

namespace strobe::STROBE_TARGET {

using kernels::MergeParams;
using kernels::MergeTableParams;

template <class T>
struct Merge {
  using Params = MergeParams;
  using R = Real<T>;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    const u64 items = static_cast<u64>(p.batch * p.rows) * static_cast<u64>(p.heads);
    for_each_item(items, [&](u64 n) {
      const int h = static_cast<int>(n % static_cast<u64>(p.heads));
      const i64 row = static_cast<i64>(n / static_cast<u64>(p.heads));
      merge(p, static_cast<int>(row / p.rows), row % p.rows, h);
    });
  }

 private:
  STROBE_DEVICE static R part_lse(const Params& p, int n, i64 at) {
    return isa::ld_global(static_cast<const R*>(isa::ld_global(p.partial_lse + n)) + at);
  }

  STROBE_DEVICE static void merge(const Params& p, int b, i64 row, int h) {
    const i64 lse_at = index_of(p.lse_stride, b, row, h), o_at = index_of(p.o.stride, b, row, h);
    const R none = minus_infinity<R>();
    R largest = none;
    for (int n = 0; n < p.parts; ++n) {
      const R x = part_lse(p, n, lse_at);
      largest = x > largest ? x : largest;
    }
    double sum = 0;  // a NaN among the parts makes it NaN, and with it the result
    for (int n = 0; n < p.parts; ++n) {
      const R x = part_lse(p, n, lse_at);
      if (x != none) sum += core::exp64(static_cast<double>(x) - largest);
    }
    R out[kPerLane] = {};
    bool first = true;
    for (int n = 0; n < p.parts; ++n) {
      const R x = part_lse(p, n, lse_at);
      if (x == none) continue;
      const void* part = isa::ld_global(p.partial_o + n);
      const auto weight = static_cast<R>(core::exp64(static_cast<double>(x) - largest) / sum);
      add(p, out, part, o_at, weight, first);
      first = false;
    }
    store(p, out, o_at);
    if (p.lse && isa::lane_id() == 0) {
      isa::st_global(static_cast<R*>(p.lse) + lse_at,
                     sum == 0 ? none : static_cast<R>(largest + core::log64(sum)));
    }
  }

  // The first part is not added to 0: a -0 stays one.
  STROBE_DEVICE static void add(const Params& p, R (&out)[kPerLane], const void* part, i64 at,
                                R weight, bool first) {
    const int lane = static_cast<int>(isa::lane_id());
    STROBE_UNROLL
    for (int c = 0; c < kPerLane; ++c) {
      const int x = 32 * c + lane;
      if (x >= p.head_dim_v) continue;
      const R o = p.partial_is_real ? isa::ld_global(static_cast<const R*>(part) + at + x)
                                    : to_real(isa::ld_global(static_cast<const T*>(part) + at + x));
      out[c] = first ? weight * o : out[c] + weight * o;
    }
  }

  STROBE_DEVICE static void store(const Params& p, const R (&out)[kPerLane], i64 at) {
    const int lane = static_cast<int>(isa::lane_id());
    STROBE_UNROLL
    for (int c = 0; c < kPerLane; ++c) {
      const int x = 32 * c + lane;
      if (x < p.head_dim_v) {
        isa::st_global(static_cast<T*>(p.o.data) + at + x, from_real<T>(out[c]));
      }
    }
  }
};

// Writes pointers that the host knows to device memory, so that a merge may have any number of
// parts.
struct MergeTable {
  using Params = MergeTableParams;
  static constexpr int kThreads = 128, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    for (int n = static_cast<int>(isa::thread_id()); n < p.count; n += kThreads) {
      isa::st_global(p.to + n, p.pointers[n]);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_MERGE_H_
