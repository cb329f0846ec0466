// What FlashAttention-1's way of sharing work among warps needs: each warp holds the products of
// its own keys, so results over all keys are sums over the warps, made through shared memory.
// FlashAttention-2 removed this (its section 3.3).
#ifndef STROBE_SRC_KERNELS_FA1_SPLIT_H_
#define STROBE_SRC_KERNELS_FA1_SPLIT_H_

#include "core/philox.h"
#include "kernels/plain_product.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

// Word `i` of a block, without an index into registers.
STROBE_DEVICE u32 word_of(const core::PhiloxBlock& bits, u32 i) {
  const u32 low = i & 1 ? bits.word[1] : bits.word[0];
  const u32 high = i & 1 ? bits.word[3] : bits.word[2];
  return i & 2 ? high : low;
}

// One value per warp and row: row maxima, row sums.
template <int kWarps, int kRows>
struct PerWarpRows {
  static constexpr int kBytes = kWarps * kRows * 4;
  u32 base;

  STROBE_DEVICE void put(u32 warp, int row, f32 x, Here here = {}) const {
    isa::st_shared(base + (warp * kRows + static_cast<u32>(row)) * 4, x, here);
  }
  template <class F>
  STROBE_DEVICE f32 reduce(int row, F combine, Here here = {}) const {
    f32 x = isa::ld_shared<f32>(base + static_cast<u32>(row) * 4, here);
    STROBE_NO_UNROLL  // of many rows at once: loads in flight would take registers
        for (u32 w = 1; w < kWarps; ++w) x =
            combine(x, isa::ld_shared<f32>(base + (w * kRows + static_cast<u32>(row)) * 4, here));
    return x;
  }
};

// Each warp's 16 x kCols partial product. Rows are padded by 32 bytes against bank conflicts.
template <int kWarps, int kCols>
struct PartialSlabs {
  static constexpr int kRowBytes = kCols * 4 + 32;
  static constexpr int kBytes = kWarps * 16 * kRowBytes;
  u32 base;

  STROBE_DEVICE u32 at(u32 warp, int row, int col) const {
    return base + (warp * 16 + static_cast<u32>(row)) * kRowBytes + static_cast<u32>(col) * 4;
  }
  // Columns from first_col on.
  template <int kN>
  STROBE_DEVICE void put(u32 warp, const Accumulator<16, kN>& x, int first_col, u32 lane,
                         Here here = {}) const {
    using Part = Accumulator<16, kN>;
    STROBE_UNROLL
    for (int n = 0; n < Part::kNTiles; ++n) {
      STROBE_UNROLL
      for (int r = 0; r < 2; ++r) {
        isa::st_shared(at(warp, Part::row(r, lane), first_col + Part::col(2 * n, lane)),
                       f32x2{x.x[0][n][2 * r], x.x[0][n][2 * r + 1]}, here);
      }
    }
  }
  // The sum over the warps of four neighbouring elements.
  STROBE_DEVICE f32x4 sum(int row, int col, Here here = {}) const {
    f32x4 total = isa::ld_shared<f32x4>(at(0, row, col), here);
    STROBE_UNROLL
    for (u32 w = 1; w < kWarps; ++w) {
      const f32x4 x = isa::ld_shared<f32x4>(at(w, row, col), here);
      STROBE_UNROLL
      for (int e = 0; e < 4; ++e) total[e] += x[e];
    }
    isa::count(core::Op::kSum, 4 * (kWarps - 1));
    return total;
  }
};

// The float32 rows of one head in the workspace, as all kThreads threads of its CTA see them.
template <int kThreads>
struct RunningRows {
  f32* data;  // row 0 of the head
  int dim;    // a multiple of 8

  STROBE_DEVICE f32* at(int row, int col) const { return data + static_cast<i64>(row) * dim + col; }

  STROBE_DEVICE void zero(int rows, Here here = {}) const {
    const i64 end = static_cast<i64>(rows) * dim;
    for (i64 x = isa::thread_id() * 4; x < end; x += kThreads * 4)
      isa::st_global(reinterpret_cast<f32x4*>(data + x), f32x4{}, here);
  }
  // f(row, column, elements): f32x4 by f32x4 over 16 rows from `first`, those below `rows`.
  template <int kCols, class F>
  STROBE_DEVICE void update_slab(int first, int rows, F f, Here here = {}) const {
    constexpr int kVecs = kCols / 4;
    STROBE_UNROLL
    for (int x = 0; x < ceil_div(16 * kVecs, kThreads); ++x) {
      const int v = static_cast<int>(isa::thread_id()) + x * kThreads;
      const int row = v / kVecs, col = v % kVecs * 4;
      if (v >= 16 * kVecs || first + row >= rows || col >= dim) continue;
      f32x4* p = reinterpret_cast<f32x4*>(at(first + row, col));
      isa::st_global(p, f(row, col, isa::ld_global(p, here)), here);
    }
  }
  // Rounds rows to T, times `scale`; those from `rows` to `all_rows` become zeros.
  template <class T, class Address>
  STROBE_DEVICE void convert(int rows, int all_rows, Address address, int head_dim, bool vector,
                             f32 scale, Here here = {}) const {
    const int chunks = dim / 8;
    for (i64 x = isa::thread_id(); x < static_cast<i64>(all_rows) * chunks; x += kThreads) {
      const int row = static_cast<int>(x / chunks), chunk = static_cast<int>(x % chunks);
      u32x4 packed = {};
      if (row < rows) {
        const f32x4* from = reinterpret_cast<const f32x4*>(at(row, 8 * chunk));
        const f32x4 lo = isa::ld_global(from, here), hi = isa::ld_global(from + 1, here);
        packed = {
            isa::pack<T>(lo[0] * scale, lo[1] * scale), isa::pack<T>(lo[2] * scale, lo[3] * scale),
            isa::pack<T>(hi[0] * scale, hi[1] * scale), isa::pack<T>(hi[2] * scale, hi[3] * scale)};
      }
      T* to = address(row);
      store_chunk(to, static_cast<u32>(chunk), bit_cast<Vec<T, 8>>(packed), head_dim, vector, here);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA1_SPLIT_H_
