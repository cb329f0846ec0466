// Standard attention: the matrix products S = tau Q K^T, O = P V, and of backward dV = P^T dO,
// dP = dO V^T, dQ = tau dS K, dK = tau dS^T Q, each a launch of its own with every operand in
// device memory.
//
// One CTA makes a block_m x block_n tile of Z = X Y; its four warps a quarter each. Per step of
// block_k:
//
//     wait for X and Y of this step     all threads, one barrier
//     load X and Y of the next          cp.async, into the other stage
//     Z += X Y                          mma.sync, float32
//
// With grouped queries dK and dV are sums over the query heads of their group, in one accumulator.
#ifndef STROBE_SRC_KERNELS_STANDARD_MATMUL_H_
#define STROBE_SRC_KERNELS_STANDARD_MATMUL_H_

#include "kernels/plain_product.h"
#include "kernels/standard_config.h"
#include "tile/element.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::MatmulConfig;
using kernels::MatmulParams;
using kernels::Product;
using kernels::standard_matmul_config;

template <MatmulConfig C>
struct StandardMatmul {
  using Params = MatmulParams;
  using T = Element<C.dtype>;
  using Out = Element<C.out>;
  static constexpr bool kXRows = C.product != Product::kKeysDim;      // X has inner as columns
  static constexpr bool kYRows = C.product == Product::kQueriesKeys;  // Y has inner as columns
  using XTile = SmemTile<T, kXRows ? C.block_m : C.block_k, kXRows ? C.block_k : C.block_m>;
  using YTile = SmemTile<T, kYRows ? C.block_n : C.block_k, kYRows ? C.block_k : C.block_n>;
  using WarpZ = Accumulator<C.block_m / 2, C.block_n / 2>;
  static constexpr int kThreads = 128;
  static constexpr int kMinCtas = 1;
  static constexpr int kBlockM = C.block_m, kBlockN = C.block_n, kStages = 2;
  static constexpr int kStageBytes = XTile::kBytes + YTile::kBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  STROBE_DEVICE static XTile x_tile(int stage) {
    return {isa::shared_base() + static_cast<u32>(stage * kStageBytes)};
  }
  STROBE_DEVICE static YTile y_tile(int stage) { return {x_tile(stage).base + XTile::kBytes}; }

  STROBE_DEVICE static void run(const Params& p) { StandardMatmul(p).multiply(); }

 private:
  const Params& p;
  const u32 lane;
  const int warp_m, warp_n;  // this warp's corner of the tile
  const int group;           // query heads per head of K and V
  int m0, n0;                // the tile's corner
  int b, head;               // of Z
  core::Sequence seq;

  STROBE_DEVICE explicit StandardMatmul(const Params& params)
      : p(params),
        lane(isa::lane_id()),
        warp_m(static_cast<int>(isa::warp_id()) / 2 * (C.block_m / 2)),
        warp_n(static_cast<int>(isa::warp_id()) % 2 * (C.block_n / 2)),
        group(p.a.heads / p.a.kv_heads) {
    const u32 tile = isa::cta_id() % (p.blocks_m * p.blocks_n);
    const int head_batch = static_cast<int>(isa::cta_id() / (p.blocks_m * p.blocks_n));
    m0 = static_cast<int>(tile / p.blocks_n) * C.block_m;
    n0 = static_cast<int>(tile % p.blocks_n) * C.block_n;
    const int heads = C.product == Product::kKeysDim ? p.a.kv_heads : p.a.heads;
    b = head_batch / heads;
    head = head_batch % heads;
    seq = sequence(p.a, b);
  }

  STROBE_DEVICE void multiply() {
    const int inner = C.product == Product::kQueriesKeys  ? p.dim
                      : C.product == Product::kQueriesDim ? seq.len_k
                                                          : seq.len_q;
    const int per_head = ceil_div(inner, C.block_k);
    const int steps = C.product == Product::kKeysDim ? per_head * group : per_head;
    WarpZ z;
    z.clear();
    if (steps > 0) load(0, per_head, 0);
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      isa::cp_async_wait<0>();
      isa::cta_sync();  // X and Y of this step are there; the other stage is read by nobody
      if (step + 1 < steps) load(step + 1, per_head, 1 - stage);
      multiply_add<T, C.block_k>(
          z, [&](int m, int k) { return operand_x(stage, warp_m + 16 * m, k); },
          [&](int n, int k) { return operand_y(stage, warp_n + 16 * n, k); });
    }
    store(z);
  }

  STROBE_DEVICE u32x4 operand_x(int stage, int m, int k) const {
    if constexpr (kXRows) {
      return load_a(x_tile(stage), m, k, lane);
    } else {
      return load_a_transposed(x_tile(stage), m, k, lane);
    }
  }
  STROBE_DEVICE u32x4 operand_y(int stage, int n, int k) const {
    if constexpr (kYRows) {
      return load_b(y_tile(stage), n, k, lane);
    } else {
      return load_b_transposed(y_tile(stage), n, k, lane);
    }
  }

  // A tile's rows from `row0` on, those below `rows`, and its columns from `col0` on.
  template <class Tile>
  STROBE_DEVICE void load_tile(const Tile& tile, const TensorArg& t, i64 first_row, int h, int row0,
                               int rows, int col0, int cols, bool vector) const {
    const T* base = static_cast<const T*>(t.data) + b * t.stride.batch + h * t.stride.head +
                    (first_row + row0) * t.stride.seq + col0;
    load_rows<kThreads>(
        tile,
        [&](int r) -> const T* {
          return row0 + r < rows && col0 < cols ? base + r * t.stride.seq : nullptr;
        },
        cols - col0, vector);
  }

  STROBE_DEVICE void load(int step, int per_head, int stage) const {
    const int k0 = step % per_head * C.block_k;
    const XTile x = x_tile(stage);
    const YTile y = y_tile(stage);
    if constexpr (C.product == Product::kQueriesKeys) {
      load_tile(x, p.x, seq.q_begin, head, m0, seq.len_q, k0, p.dim, p.x_vector);
      load_tile(y, p.y, seq.k_begin, head / group, n0, seq.len_k, k0, p.dim, p.y_vector);
    } else if constexpr (C.product == Product::kQueriesDim) {
      load_tile(x, p.x, 0, head, m0, seq.len_q, k0, p.columns, p.x_vector);
      load_tile(y, p.y, seq.k_begin, head / group, k0, seq.len_k, n0, p.dim, p.y_vector);
    } else {
      const int h = head * group + step / per_head;
      load_tile(x, p.x, 0, h, k0, seq.len_q, m0, p.columns, p.x_vector);
      load_tile(y, p.y, seq.q_begin, h, k0, seq.len_q, n0, p.dim, p.y_vector);
    }
    isa::cp_async_commit();
  }

  STROBE_DEVICE void store(const WarpZ& z) const {
    // Rows outside the sequence have had nothing but zeros loaded, so they become zeros.
    const int rows = C.product == Product::kQueriesKeys  ? seq.len_q
                     : C.product == Product::kQueriesDim ? seq.rows_q
                                                         : p.a.lengths.seqlen_k;
    const int cols = C.product == Product::kQueriesKeys ? p.columns : p.dim;
    const i64 first_row = C.product == Product::kQueriesKeys  ? 0
                          : C.product == Product::kQueriesDim ? seq.q_begin
                                                              : seq.k_begin;
    Out* base = static_cast<Out*>(p.z.data) + b * p.z.stride.batch + head * p.z.stride.head +
                first_row * p.z.stride.seq;
    STROBE_UNROLL
    for (int i = 0; i < WarpZ::kRowsPerLane; ++i) {
      const int row = m0 + warp_m + WarpZ::row(i, lane);
      if (row >= rows) continue;
      STROBE_UNROLL
      for (int n = 0; n < WarpZ::kNTiles; ++n) {
        const int col = n0 + warp_n + WarpZ::col(2 * n, lane);
        const auto& e = z.x[i / 2][n];
        store_pair(base + row * p.z.stride.seq + col, e[2 * (i % 2)] * p.scale,
                   e[2 * (i % 2) + 1] * p.scale, cols - col);
      }
    }
  }

  // Two neighbours, the first of which has an even column; `left` columns are still in the matrix.
  STROBE_DEVICE void store_pair(Out* to, f32 first, f32 second, int left) const {
    if (left <= 0) return;
    if (!p.z_vector) {
      isa::st_global(to, isa::from_float<Out>(first));
      if (left > 1) isa::st_global(to + 1, isa::from_float<Out>(second));
    } else if constexpr (C.out == Dtype::kF32) {
      isa::st_global(reinterpret_cast<f32x2*>(to), f32x2{first, second});
    } else {
      isa::st_global(reinterpret_cast<u32*>(to), isa::pack<Out>(first, second));
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_STANDARD_MATMUL_H_
