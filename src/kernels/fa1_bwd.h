// FlashAttention-1, backward (its algorithm 4), on mma.sync.
//
// One CTA takes a whole head: with grouped queries, a head of K and V and all its query heads. K
// and V blocks are outside and dK, dV of a block stay on chip; Q blocks inside, with dQ read, added
// to and written in device memory (float32 workspace) at every step. P is recomputed from Q, K and
// the row statistics. Warps split the keys; everything is held transposed (keys x queries), so that
// P and dS are A operands straight from the accumulators; dQ is a sum over all keys and goes
// through shared memory, warp by warp.
//
//     dQ = 0                            in device memory
//     for each block j of keys:
//       load K_j, V_j; dK = dV = 0      registers, per warp its own keys
//       for each block i of queries that sees one of them:
//         load Q_i, dO_i, O_i           cp.async
//         D_i = rowsum(dO o O) - dLSE   threads by rows                      barrier A
//         S = tau Q_i K_j^T, P = exp(S - LSE)   LSE = m + log l; mask
//         dV += (Z o P)^T dO_i          Z: dropout
//         dP = Z o dO_i V_j^T
//         dS = P o (dP - D_i)           rounded to the dtype
//         dK += dS^T Q_i
//         dQ_i += tau dS K_j            over 16 rows at a time, summed over
//                                       the warps                            barriers C, D
//       write tau dK_j, dV_j
//     dQ rounded to the dtype
//
// The paper keeps m and l; here they arrive as one number, LSE, which gives the same P.
#ifndef STROBE_SRC_KERNELS_FA1_BWD_H_
#define STROBE_SRC_KERNELS_FA1_BWD_H_

#include "kernels/fa1_config.h"
#include "kernels/fa1_split.h"
#include "tile/element.h"
#include "tile/modifiers.h"
#include "tile/online_softmax.h"

namespace strobe::STROBE_TARGET {

using kernels::fa1_bwd_config;
using kernels::Fa1BwdParams;
using kernels::Fa1Config;
using kernels::Gradients;

template <Fa1Config C>
struct Fa1Bwd {
  using Params = Fa1BwdParams;
  using T = Element<C.dtype>;
  using QTile = SmemTile<T, C.block_m, C.head_dim>;
  using KTile = SmemTile<T, C.block_n, C.head_dim>;
  using WarpKeys = SmemTile<T, C.warp_keys(), C.head_dim>;  // one warp's rows of a KTile
  using WarpDs = SmemTile<T, C.warp_keys(), C.block_m>;     // one warp's dS^T
  using WarpS = Accumulator<C.warp_keys(), C.block_m>;      // S^T: a row is a key
  struct Operand {                                          // S^T, rounded, as operand A
    u32x4 x[C.warp_keys() / 16][C.block_m / 16];
  };
  using WarpDk = Accumulator<C.warp_keys(), C.head_dim>;
  using Partials = PartialSlabs<C.warps, C.head_dim>;
  static constexpr int kThreads = C.warps * 32;
  static constexpr int kMinCtas = 1;
  static constexpr int kBlockM = C.block_m, kBlockN = C.block_n;
  static constexpr int kRows = WarpS::kRowsPerLane;
  static constexpr int kPartCols =
      core::min(C.head_dim, 32);  // of partial dQ that are in registers at once

  // Shared memory: K, V, Q, dO, O, each warp's dS^T, partial dQ, LSE and D of the block's rows.
  static constexpr int kV = KTile::kBytes, kQ = kV + KTile::kBytes;
  static constexpr int kDout = kQ + QTile::kBytes, kO = kDout + QTile::kBytes;
  static constexpr int kDs = kO + QTile::kBytes, kPartials = kDs + C.warps * WarpDs::kBytes;
  static constexpr int kStatistics = kPartials + Partials::kBytes;
  static constexpr int kSharedBytes = kStatistics + C.block_m * 8;
  template <class Tile>
  STROBE_DEVICE static Tile at(int offset, u32 index = 0) {
    return {isa::shared_base() + static_cast<u32>(offset) + index * Tile::kBytes};
  }
  STROBE_DEVICE static u32 statistics(int row) {
    return isa::shared_base() + kStatistics + static_cast<u32>(row) * 8;
  }
  STROBE_DEVICE static Partials partials() { return {isa::shared_base() + kPartials}; }

  STROBE_DEVICE static void run(const Params& p) { Fa1Bwd(p).differentiate(); }

 private:
  const Params& p;
  const Gradients& g;
  const int group;  // query heads that share the head of K and V
  QueryTile tile;   // of block i of query head tile.head
  const int first_head;
  const u32 lane, warp;
  const int blocks_q;

  STROBE_DEVICE explicit Fa1Bwd(const Params& params)
      : p(params),
        g(p.g),
        group(g.a.heads / g.a.kv_heads),
        tile(g.a, 0, isa::cta_id() * static_cast<u32>(group), C.block_m),
        first_head(tile.head),
        lane(isa::lane_id()),
        warp(isa::warp_id()),
        blocks_q(ceil_div(tile.seq.len_q, C.block_m)) {}

  STROBE_DEVICE void differentiate() {
    for (int h = first_head; h < first_head + group; ++h) dq(h).zero(tile.seq.len_q);
    const int blocks_k = ceil_div(g.a.lengths.seqlen_k, C.block_n);
    for (int j = 0; j < blocks_k; ++j) {
      WarpDk dk, dv;
      dk.clear();
      dv.clear();
      const int steps = group * blocks_q;
      int step = next_step(0, j);
      isa::cta_sync();  // dK and dV of j - 1 have left K's and V's place
      if (step < steps) load_kv(j);
      for (; step < steps; step = next_step(step + 1, j)) {
        tile.head = first_head + step / blocks_q;
        tile.first_row = static_cast<i64>(step % blocks_q) * C.block_m;
        load_block();
        isa::cp_async_wait<0>();
        isa::cta_sync();  // K_j, V_j, Q_i, dO_i, O_i are there; the last dQ_i is written
        row_statistics();
        isa::cta_sync();  // A
        add_block(j * C.block_n, dk, dv);
      }
      store(dk, at<WarpKeys>(0, warp), g.dk, j * C.block_n, g.a.head_dim, g.a.scale);
      store(dv, at<WarpKeys>(kV, warp), g.dv, j * C.block_n, g.a.head_dim_v, 1.0f);
    }
    isa::cta_sync();
    finish();
  }

  STROBE_DEVICE RunningRows<kThreads> dq(int head) const {
    return {p.run_dq + tile.offset(p.run.stride, 0, head) * p.run.dim, p.run.dim};
  }

  // The first step from s on whose queries see a key of block j. Steps count blocks, head by head.
  STROBE_DEVICE int next_step(int s, int j) const {
    for (; s < group * blocks_q; ++s) {
      const int first = s % blocks_q * C.block_m;
      const int last = core::min(first + C.block_m, tile.seq.len_q) - 1;
      const core::Keys32 any = core::tile_keys(tile.seq, first, last).any;
      if (any.begin < (j + 1) * C.block_n && any.end > j * C.block_n) break;
    }
    return s;
  }

  STROBE_DEVICE void load_kv(int j) {
    const auto row = [&](const TensorArg& t) {
      const T* base = static_cast<const T*>(t.data) + tile.b * t.stride.batch +
                      tile.seq.k_begin * t.stride.seq + tile.kv_head * t.stride.head;
      return [=, this](int r) -> const T* {
        const int key = j * C.block_n + r;
        return key < tile.seq.len_k ? base + key * t.stride.seq : nullptr;
      };
    };
    load_rows<kThreads>(at<KTile>(0), row(g.k), g.a.head_dim, g.a.vector_loads);
    load_rows<kThreads>(at<KTile>(kV), row(g.v), g.a.head_dim_v, g.a.vector_loads);
  }

  STROBE_DEVICE void load_block() {
    const auto row = [&](const TensorArg& t) {
      return [&](int r) -> const T* {
        const int query = tile.query(r);
        return query < tile.seq.len_q
                   ? static_cast<const T*>(t.data) + tile.offset(t.stride, query, tile.head)
                   : nullptr;
      };
    };
    load_rows<kThreads>(at<QTile>(kQ), row(g.q), g.a.head_dim, g.a.vector_loads);
    load_rows<kThreads>(at<QTile>(kDout), row(g.dout), g.a.head_dim_v, g.a.vector_loads);
    load_rows<kThreads>(at<QTile>(kO), row(g.o), g.a.head_dim_v, g.a.vector_loads);
    isa::cp_async_commit();
  }

  // LSE and D of each row. Neighbouring lanes share a row.
  STROBE_DEVICE void row_statistics() {
    constexpr int kPerRow = core::min(kThreads / C.block_m, 8);
    static_assert(kPerRow >= 1 && (kPerRow & (kPerRow - 1)) == 0);
    const int row = static_cast<int>(isa::thread_id()) / kPerRow;
    const int first = static_cast<int>(isa::thread_id()) % kPerRow;
    f32 d = 0;
    if (row < C.block_m) {
      STROBE_NO_UNROLL
      for (int c = 0; c < QTile::kChunks; c += kPerRow) {
        const u32 chunk = static_cast<u32>(c + first);
        const auto dout = isa::ld_shared<Vec<T, 8>>(at<QTile>(kDout).at(row, chunk));
        const auto o = isa::ld_shared<Vec<T, 8>>(at<QTile>(kO).at(row, chunk));
        STROBE_UNROLL
        for (int x = 0; x < 8; ++x) d = isa::fma(isa::to_float(dout[x]), isa::to_float(o[x]), d);
      }
    }
    STROBE_UNROLL
    for (u32 x = 1; x < kPerRow; x *= 2) d += isa::shfl_xor(d, x);
    isa::count(core::Op::kOther, 2 * C.head_dim / kPerRow);
    if (row >= C.block_m || first != 0) return;
    // Rows without a query, or without a key: exp(S - inf) = 0.
    const int query = tile.query(row);
    f32 lse = core::infinity();
    if (query < tile.seq.len_q) {
      const f32 x = isa::ld_global(g.lse + tile.offset(g.lse_stride, query, tile.head));
      if (x != -core::infinity()) lse = x;
      if (g.dlse) d -= isa::ld_global(g.dlse + tile.offset(g.dlse_stride, query, tile.head));
    }
    isa::st_shared(statistics(row), f32x2{lse * kLog2e, d});
  }

  STROBE_DEVICE void add_block(int key0, WarpDk& dk, WarpDk& dv) {
    const QTile q = at<QTile>(kQ), dout = at<QTile>(kDout);
    const WarpKeys k_w = at<WarpKeys>(0, warp), v_w = at<WarpKeys>(kV, warp);
    const int warp_key0 = key0 + static_cast<int>(warp) * C.warp_keys();
    WarpS s, dp;
    s.clear();
    multiply_add<T, C.head_dim>(
        s, [&](int m, int k) { return load_a(k_w, 16 * m, k, lane); },
        [&](int n, int k) { return load_b(q, 16 * n, k, lane); });
    probabilities(s, warp_key0);
    dp.clear();
    multiply_add<T, C.head_dim>(
        dp, [&](int m, int k) { return load_a(v_w, 16 * m, k, lane); },
        [&](int n, int k) { return load_b(dout, 16 * n, k, lane); });
    const Operand p_kept = drop(s, dp, warp_key0);
    multiply_add<T, C.block_m>(
        dv, [&](int m, int k) { return p_kept.x[m][k]; },
        [&](int n, int k) { return load_b_transposed(dout, 16 * n, k, lane); });
    score_gradients(s, dp);
    multiply_add<T, C.block_m>(
        dk, [&](int m, int k) { return rounded_a<T>(s, m, k); },
        [&](int n, int k) { return load_b_transposed(q, 16 * n, k, lane); });
    add_dq(s, k_w);
  }

  // f(elements of two neighbouring queries and one key, query of the block, key row of the warp).
  template <class F>
  STROBE_DEVICE void for_pairs(F f) const {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int n = 0; n < WarpS::kNTiles; ++n)
        f(i, n, WarpS::col(2 * n, lane), WarpS::row(i, lane));
    }
  }

  // S^T becomes P^T.
  STROBE_DEVICE void probabilities(WarpS& s, int key0) const {
    const f32 scale_log2 = g.a.scale * kLog2e;
    STROBE_UNROLL
    for (int n = 0; n < 2 * WarpS::kNTiles; ++n) {
      const int col = WarpS::col(n, lane);
      const core::Keys32 keys = tile.seq.keys(tile.query(col));
      const f32 lse = isa::ld_shared<f32>(statistics(col));
      STROBE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const int key = key0 + WarpS::row(i, lane);
        f32& x = s.x[i / 2][n / 2][2 * (i % 2) + n % 2];
        const f32 exp = isa::ex2(isa::fma(x, scale_log2, -lse));
        x = key >= keys.begin && key < keys.end ? exp : 0.0f;
      }
    }
    isa::count(core::Op::kScale, 2 * WarpS::kNTiles * kRows);
  }

  // Z o P, rounded; dP becomes Z o dP.
  STROBE_DEVICE Operand drop(const WarpS& s, WarpS& dp, int key0) const {
    Operand kept;
    const bool dropout = g.a.mod.keep_threshold != 0;
    core::PhiloxBlock stream = {};
    if (dropout) {
      stream = RowDropout(g.a.mod, static_cast<u64>(tile.b) * g.a.heads + tile.head, 0).stream;
      isa::count(core::Op::kOther, 4 * WarpS::kNTiles * kRows);
    }
    for_pairs([&](int i, int n, int col, int key_row) {
      const int r = 2 * (i % 2);
      f32 z[2] = {1.0f, 1.0f};
      if (dropout) {
        const u32 key = static_cast<u32>(key0 + key_row);
        STROBE_UNROLL
        for (int x = 0; x < 2; ++x) {
          const u32 query = static_cast<u32>(tile.query(col + x));
          const core::PhiloxBlock bits = core::dropout_bits(stream, query, key / 8);
          const u32 draw = word_of(bits, key % 8 / 2) >> (16 * (key % 2)) & 0xFFFFu;
          z[x] = draw >= g.a.mod.keep_threshold ? g.a.mod.keep_scale : 0.0f;
          dp.x[i / 2][n][r + x] *= z[x];
        }
      }
      kept.x[i / 2][n / 2][2 * (n % 2) + i % 2] =
          isa::pack<T>(s.x[i / 2][n][r] * z[0], s.x[i / 2][n][r + 1] * z[1]);
    });
    return kept;
  }

  // dS = P o (dP - D) in place of P.
  STROBE_DEVICE void score_gradients(WarpS& s, const WarpS& dp) const {
    STROBE_UNROLL
    for (int n = 0; n < 2 * WarpS::kNTiles; ++n) {
      const f32 d = isa::ld_shared<f32>(statistics(WarpS::col(n, lane)) + 4);
      STROBE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const int r = 2 * (i % 2) + n % 2;
        s.x[i / 2][n / 2][r] *= dp.x[i / 2][n / 2][r] - d;
      }
    }
    isa::count(core::Op::kOther, 4 * WarpS::kNTiles * kRows);
  }

  STROBE_DEVICE void add_dq(const WarpS& ds, const WarpKeys& k_w) {
    const WarpDs ds_w = at<WarpDs>(kDs, warp);
    for_pairs([&](int i, int n, int, int key_row) {
      const auto& x = ds.x[i / 2][n];
      isa::st_shared(ds_w.at(key_row, n) + 4 * (lane % 4),
                     isa::pack<T>(x[2 * (i % 2)], x[2 * (i % 2) + 1]));
    });
    isa::warp_sync();  // this warp's dS^T is there
    STROBE_NO_UNROLL
    for (int slab = 0; slab < C.block_m / 16; ++slab) {
      STROBE_NO_UNROLL
      for (int col = 0; col < C.head_dim; col += kPartCols) {
        Accumulator<16, kPartCols> part;
        part.clear();
        multiply_add<T, C.warp_keys()>(
            part, [&](int, int k) { return load_a_transposed(ds_w, 16 * slab, k, lane); },
            [&](int n, int k) { return load_b_transposed(k_w, col + 16 * n, k, lane); });
        partials().put(warp, part, col, lane);
      }
      isa::cta_sync();  // C: every warp's part
      dq(tile.head).template update_slab<C.head_dim>(tile.query(16 * slab), tile.seq.len_q,
                                                     [&](int row, int col, f32x4 x) {
                                                       const f32x4 sum = partials().sum(row, col);
                                                       STROBE_UNROLL
                                                       for (int e = 0; e < 4; ++e)
                                                         x[e] = isa::fma(sum[e], g.a.scale, x[e]);
                                                       isa::count(core::Op::kOther, 8);
                                                       return x;
                                                     });
      if (slab + 1 < C.block_m / 16) isa::cta_sync();  // D: the parts are read
    }
  }

  // This warp's rows of dK or dV, through the place of its K or V, which nobody else reads.
  STROBE_DEVICE void store(const WarpDk& x, const WarpKeys& buffer, const TensorArg& t, int key0,
                           int head_dim, f32 scale) const {
    isa::warp_sync();
    STROBE_UNROLL
    for (int i = 0; i < WarpDk::kRowsPerLane; ++i) {
      STROBE_UNROLL
      for (int n = 0; n < WarpDk::kNTiles; ++n) {
        const auto& e = x.x[i / 2][n];
        isa::st_shared(buffer.at(WarpDk::row(i, lane), n) + 4 * (lane % 4),
                       isa::pack<T>(e[2 * (i % 2)] * scale, e[2 * (i % 2) + 1] * scale));
      }
    }
    isa::warp_sync();
    T* base = static_cast<T*>(t.data) + tile.b * t.stride.batch + tile.seq.k_begin * t.stride.seq +
              tile.kv_head * t.stride.head;
    for (u32 c = lane; c < C.warp_keys() * WarpKeys::kChunks; c += kWarpThreads) {
      const u32 row = c / WarpKeys::kChunks, chunk = c % WarpKeys::kChunks;
      const i64 key = key0 + static_cast<int>(warp * C.warp_keys() + row);
      if (key >= g.a.lengths.seqlen_k) continue;
      store_chunk(base + key * t.stride.seq, chunk,
                  isa::ld_shared<Vec<T, 8>>(buffer.at(row, chunk)), head_dim, g.a.vector_loads);
    }
  }

  STROBE_DEVICE void finish() {
    T* out = static_cast<T*>(g.dq.data);
    for (int h = first_head; h < first_head + group; ++h) {
      dq(h).template convert<T>(
          tile.seq.len_q, tile.seq.rows_q,
          [&](int i) { return out + tile.offset(g.dq.stride, i, h); }, g.a.head_dim,
          g.a.vector_loads, 1.0f);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA1_BWD_H_
