// FlashAttention-2, backward, for mma.sync machines (Ampere and later). (FlashAttention-2,
// algorithm 2.)
//
// One CTA takes block_n keys of one key/value head, keeps their dK and dV in registers, and walks
// over the query blocks that see them, for every query head of the group. Per query block:
//
//     S = Q K^T            P = exp(S - LSE)
//     dP = dO V^T          dS = P (dP - delta)         P and dS go to shared memory
//     dV += P^T dO         dK += dS^T Q
//     dQ = dS K            added to the float32 accumulator in device memory
//
// with the next Q and dO on their way. Before it, fa2_bwd_delta makes LSE in units of log2 and
// delta = rowsum(O dO) - dLSE; after it, fa2_bwd_dq turns the accumulator into dQ. dQ is summed in
// the order in which CTAs come, or, where bits must not depend on it, in the order of their keys.
#ifndef STROBE_SRC_KERNELS_FA2_BWD_H_
#define STROBE_SRC_KERNELS_FA2_BWD_H_

#include "core/query_range.h"
#include "core/scheduler.h"
#include "kernels/fa2_bwd_params.h"
#include "kernels/fa2_config.h"
#include "tile/copy.h"
#include "tile/element.h"
#include "tile/fragment.h"
#include "tile/modifiers.h"
#include "tile/online_softmax.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::Fa2BwdConfig;
using kernels::Fa2BwdParams;
using kernels::Features;

template <Fa2BwdConfig C>
struct Fa2Bwd {
  using Params = Fa2BwdParams;
  using T = Element<C.dtype>;
  static constexpr int kThreads = 32 * C.warps(), kMinCtas = C.min_ctas;
  static constexpr int kBlockM = C.block_m, kBlockN = C.block_n;
  static constexpr bool kFull = C.features == Features::kFull;

  using QTile = SmemTile<T, C.block_m, C.head_dim>;
  using KTile = SmemTile<T, C.block_n, C.head_dim>;
  using PTile = SmemTile<T, C.block_m, C.block_n>;
  using WarpS = Accumulator<C.block_m / C.s.rows, C.block_n / C.s.cols>;
  using WarpDkv = Accumulator<C.block_n / C.dkv.rows, C.head_dim / C.dkv.cols>;
  using WarpDq = Accumulator<C.block_m / C.dq.rows, C.head_dim / C.dq.cols>;
  using KeyColumns = ReadColumns<PTile, C.block_n / C.dkv.rows>;
  using DimColumns = ReadColumns<QTile, C.head_dim / C.dkv.cols>;
  using Loader = BlockLoader<kThreads, QTile, T>;
  static constexpr int kRows = WarpS::kRowsPerLane;

  // Shared memory: K, V, then stages of Q and dO, then P and dS, then stages of LSE and delta.
  static constexpr int kStatBytes = C.block_m * 4;
  static constexpr int kQBase = 2 * KTile::kBytes, kPBase = kQBase + 2 * C.stages * QTile::kBytes;
  static constexpr int kStatBase = kPBase + 2 * PTile::kBytes;
  static constexpr int kSharedBytes = kStatBase + 2 * C.stages * kStatBytes;
  STROBE_DEVICE static KTile k_tile() { return {isa::shared_base()}; }
  STROBE_DEVICE static KTile v_tile() { return {isa::shared_base() + KTile::kBytes}; }
  STROBE_DEVICE static QTile q_tile(int t) {
    return {isa::shared_base() + kQBase + 2 * (t & (C.stages - 1)) * QTile::kBytes};
  }
  STROBE_DEVICE static QTile do_tile(int t) { return {q_tile(t).base + QTile::kBytes}; }
  STROBE_DEVICE static PTile p_tile() { return {isa::shared_base() + kPBase}; }
  STROBE_DEVICE static PTile ds_tile() { return {isa::shared_base() + kPBase + PTile::kBytes}; }
  STROBE_DEVICE static u32 lse_at(int t, int row) {
    return isa::shared_base() + kStatBase + 2 * (t & (C.stages - 1)) * kStatBytes + 4 * row;
  }
  STROBE_DEVICE static u32 delta_at(int t, int row) { return lse_at(t, row) + kStatBytes; }

  STROBE_DEVICE static void run(const Params& p) {
    const u32 head_batches = static_cast<u32>(p.g.a.batch * p.g.a.kv_heads);
    const core::TileIndex index =
        core::LongestFirst{p.n_blocks, head_batches, p.heads_in_l2}(isa::cta_id());
    const int b = static_cast<int>(index.head_batch) / p.g.a.kv_heads;
    const core::Sequence seq = sequence(p.g.a, b);
    // Under a causal mask the first keys are seen by most queries.
    const int n0 = static_cast<int>(p.n_blocks - 1 - index.block) * C.block_n;
    if (n0 < rows_k(p, b, seq)) {
      Fa2Bwd(p, seq, b, static_cast<int>(index.head_batch) % p.g.a.kv_heads, n0).differentiate();
    }
  }

 private:
  const Params& p;
  const core::Sequence& seq;
  const int b, kv_head, n0;
  const core::QueryRange queries;
  const int m_first, m_count;  // query blocks
  const u32 lane;
  const int warp;

  STROBE_DEVICE Fa2Bwd(const Params& params, const core::Sequence& s, int batch, int head, int key0)
      : p(params),
        seq(s),
        b(batch),
        kv_head(head),
        n0(key0),
        queries(core::queries(s, key0, key0 + C.block_n)),
        m_first(queries.begin / C.block_m),
        m_count(queries.empty() ? 0 : (queries.end - 1) / C.block_m + 1 - m_first),
        lane(isa::lane_id()),
        warp(static_cast<int>(isa::warp_id())) {}

  // Rows that dK and dV have for sequence b: those from len_k on are zeros.
  STROBE_DEVICE static int rows_k(const Params& p, int b, const core::Sequence& s) {
    const kernels::Lengths& n = p.g.a.lengths;
    if (!n.cu_k) return n.seqlen_k;
    return static_cast<int>(clamp<i64>(isa::ld_global(n.cu_k + b + 1), s.k_begin, n.total_k) -
                            s.k_begin);
  }

  // Step t of the walk: query block block(t) of query head head(t).
  STROBE_DEVICE int ratio() const { return p.g.a.heads / p.g.a.kv_heads; }
  STROBE_DEVICE int head(int t) const { return kv_head * ratio() + t / m_count; }
  STROBE_DEVICE int block(int t) const { return m_first + t % m_count; }
  STROBE_DEVICE i64 padded_row(int t) const {
    return head(t) * p.padded.rows + p.padded.first(b, seq.q_begin) + block(t) * C.block_m;
  }

  STROBE_DEVICE void differentiate() {
    WarpDkv dk, dv;
    dk.clear();
    dv.clear();
    const int steps = ratio() * m_count;
    if (steps > 0) {
      load_kv();
      load_q(0);
      isa::cp_async_commit();
    }
    STROBE_NO_UNROLL
    for (int t = 0; t < steps; ++t) step(t, steps, dk, dv);
    isa::cta_sync();  // K and V are read no more: dK and dV take their place
    store(dk, dv);
  }

  STROBE_DEVICE void step(int t, int steps, WarpDkv& dk, WarpDkv& dv) {
    isa::cp_async_wait<0>();
    isa::cta_sync();  // Q, dO of this step are there; those of the last, P and dS are done with
    WarpS s;
    {
      const int row = warp / C.s.cols * (C.block_m / C.s.rows);
      const int col = warp % C.s.cols * (C.block_n / C.s.cols);
      scores(t, steps, row, col, s);
    }
    isa::cta_sync();  // P and dS are there
    {
      const int keys = warp / C.dkv.cols * (C.block_n / C.dkv.rows);
      const int dims = warp % C.dkv.cols * (C.head_dim / C.dkv.cols);
      mma<T, C.block_m>(dv, KeyColumns::a(p_tile(), lane, keys),
                        DimColumns::b(do_tile(t), lane, dims));
      mma<T, C.block_m>(dk, KeyColumns::a(ds_tile(), lane, keys),
                        DimColumns::b(q_tile(t), lane, dims));
    }
    {
      const int row = warp / C.dq.cols * (C.block_m / C.dq.rows);
      const int dims = warp % C.dq.cols * (C.head_dim / C.dq.cols);
      WarpDq dq;
      mma<T, C.block_n, Accumulate::kNo>(
          dq, ReadA(ds_tile(), lane, row),
          ReadColumns<KTile, C.head_dim / C.dq.cols>::b(k_tile(), lane, dims), [](int) {});
      if (C.stages == 1 && t + 1 < steps) {
        isa::cta_sync();
        load_q(t + 1);
        isa::cp_async_commit();
      }
      add_dq(t, dq);
    }
  }

  // P and dS of this warp's part of the block, to shared memory.
  STROBE_DEVICE void scores(int t, int steps, int row0, int col0, WarpS& s) {
    WarpS dp;
    f32 lse2[kRows], delta[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      lse2[i] = isa::ld_shared<f32>(lse_at(t, row0 + WarpS::row(i, lane)));
      delta[i] = isa::ld_shared<f32>(delta_at(t, row0 + WarpS::row(i, lane)));
    }
    mma<T, C.head_dim, Accumulate::kNo>(s, ReadA(q_tile(t), lane, row0),
                                        ReadB(k_tile(), lane, col0), [&](int i) {
                                          if (i == C.fetch_at && C.stages > 1 && t + 1 < steps) {
                                            load_q(t + 1);
                                            isa::cp_async_commit();
                                          }
                                        });
    WarpS cap;  // derivative of the softcap; of rows with kFull alone
    modify_and_mask(t, row0, col0, s, cap);
    const f32 scale2 = (kFull ? 1.0f : p.g.a.scale) * kLog2e;
    constexpr int kSteps = C.head_dim / 16 * WarpS::kNTiles / 2;
    mma<T, C.head_dim, Accumulate::kNo>(
        dp, ReadA(do_tile(t), lane, row0), ReadB(v_tile(), lane, col0), [&](int step) {
          s.template for_share<kSteps>(
              step, [&](f32& x, int i, int) { x = isa::ex2(isa::fma(x, scale2, -lse2[i])); });
        });
    if constexpr (kFull) {
      differentiate_modified(t, row0, col0, s, dp, cap, delta);
    } else {
      STROBE_UNROLL
      for (int m = 0; m < WarpS::kMTiles; ++m) {
        STROBE_UNROLL
        for (int n = 0; n < WarpS::kNTiles; ++n) {
          STROBE_UNROLL
          for (int r = 0; r < 4; ++r)
            dp.x[m][n][r] = s.x[m][n][r] * (dp.x[m][n][r] - delta[2 * m + r / 2]);
        }
      }
    }
    isa::count(core::Op::kOther, kRows * WarpS::kNTiles * 2);
    store_p(p_tile(), s, row0, col0);
    store_p(ds_tile(), dp, row0, col0);
  }

  // As in forward; where the row does not see the key, S = -inf and so P = 0.
  STROBE_DEVICE void modify_and_mask(int t, int row0, int col0, WarpS& s, WarpS& cap) {
    const int i0 = block(t) * C.block_m, last = core::min(i0 + C.block_m, seq.len_q) - 1;
    const core::TileKeys keys = core::tile_keys(seq, i0, last);
    if (!kFull && keys.all.begin <= n0 && keys.all.end >= n0 + C.block_n) return;
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = i0 + row0 + WarpS::row(i, lane);
      const core::Keys32 range = seq.keys(query);
      if constexpr (kFull) {
        const RowModifiers<T> modifiers(p.g.a.mod, b, head(t), query < seq.len_q ? query : 0,
                                        seq.band.offset);
        s.for_each([&](f32& x, int ii, int j) {
          if (ii != i) return;
          const int key = n0 + col0 + WarpS::col(j, lane);
          f32& slope = cap.x[i / 2][j / 2][2 * (i % 2) + j % 2];
          slope = 1.0f;
          x = key >= range.begin && key < range.end ? modifiers.score(x * p.g.a.scale, key, &slope)
                                                    : -core::infinity();
        });
      } else {
        s.for_each([&](f32& x, int ii, int j) {
          const int key = n0 + col0 + WarpS::col(j, lane);
          if (ii == i && (key < range.begin || key >= range.end)) x = -core::infinity();
        });
      }
    }
  }

  // dS with dropout, bias gradient and softcap; P becomes what dV sees of it.
  STROBE_DEVICE void differentiate_modified(int t, int row0, int col0, WarpS& s, WarpS& dp,
                                            const WarpS& cap, const f32 (&delta)[kRows]) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = block(t) * C.block_m + row0 + WarpS::row(i, lane);
      const RowDropout dropout(p.g.a.mod, static_cast<u64>(b) * p.g.a.heads + head(t), query);
      STROBE_UNROLL
      for (int n = 0; n < WarpS::kNTiles; ++n) {
        const int key = n0 + col0 + WarpS::col(2 * n, lane);
        f32 keep[2] = {1.0f, 1.0f};
        if (p.g.a.mod.keep_threshold > 0) dropout.pair(p.g.a.mod, key, keep[0], keep[1]);
        STROBE_UNROLL
        for (int r = 0; r < 2; ++r) {
          f32& prob = s.x[i / 2][n][2 * (i % 2) + r];
          f32& ds = dp.x[i / 2][n][2 * (i % 2) + r];
          ds = prob == 0.0f ? 0.0f : prob * (ds * keep[r] - delta[i]);
          add_dbias(t, query, key + r, ds);
          ds *= cap.x[i / 2][n][2 * (i % 2) + r];
          prob *= keep[r];
        }
      }
    }
  }

  STROBE_DEVICE void add_dbias(int t, int query, int key, f32 ds) {
    if (!p.g.dbias || query >= seq.len_q || key >= seq.len_k || ds == 0.0f) return;
    isa::red_add(
        p.g.dbias + b * p.g.dbias_batch + head(t) * p.g.dbias_head + query * p.g.dbias_row + key,
        ds);
  }

  // This warp's part of P or dS, rounded, to its place in a tile.
  template <class Tile, class Acc>
  STROBE_DEVICE void store_p(const Tile& tile, const Acc& x, int row0, int col0) {
    STROBE_UNROLL
    for (int i = 0; i < Acc::kRowsPerLane; ++i) {
      STROBE_UNROLL
      for (int n = 0; n < Acc::kNTiles; ++n) {
        const auto& atom = x.x[i / 2][n];
        isa::st_shared(tile.at(row0 + Acc::row(i, lane), col0 / 8 + n) + 4 * (lane % 4),
                       isa::pack<T>(atom[2 * (i % 2)], atom[2 * (i % 2) + 1]));
      }
    }
  }

  // dQ joins its accumulator, whose tiles lie as the fragments do: four floats a lane, side by
  // side.
  STROBE_DEVICE void add_dq(int t, WarpDq& dq) {
    u32* turn = nullptr;
    if (p.turn) {
      turn = p.turn + padded_row(t) / C.block_m;
      const int before = n0 / C.block_n - seq.keys(block(t) * C.block_m).begin / C.block_n;
      if (isa::thread_id() == 0) isa::spin_until_equal(turn, static_cast<u32>(before));
      isa::cta_sync();
    }
    f32* to = p.dq + padded_row(t) * C.head_dim +
              (warp * WarpDq::kMTiles * WarpDq::kNTiles * 32 + lane) * 4;
    STROBE_UNROLL
    for (int m = 0; m < WarpDq::kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < WarpDq::kNTiles; ++n) {
        const auto& x = dq.x[m][n];
        isa::red_add4(to + (m * WarpDq::kNTiles + n) * 128, {x[0], x[1], x[2], x[3]});
      }
    }
    if (turn) {
      isa::fence_device();
      isa::cta_sync();
      if (isa::thread_id() == 0) isa::red_release_add(turn, 1);
    }
  }

  STROBE_DEVICE const T* row(const TensorArg& x, i64 first, int i, int h) const {
    return static_cast<const T*>(x.data) + b * x.stride.batch + (first + i) * x.stride.seq +
           h * x.stride.head;
  }

  template <class Tile>
  STROBE_DEVICE void load(const Tile& tile, const T* from, i64 stride, int rows, int dim) {
    BlockLoader<kThreads, Tile, T> loader(from, stride, dim, 1);
    if (!kFull || p.g.a.vector_loads) {
      loader.load(tile, 0, rows);
    } else {
      loader.load_scalar(tile, 0, rows);
    }
  }

  STROBE_DEVICE void load_kv() {
    const int rows = core::max(0, seq.len_k - n0);
    load(k_tile(), row(p.g.k, seq.k_begin, n0, kv_head), p.g.k.stride.seq, rows, p.g.a.head_dim);
    load(v_tile(), row(p.g.v, seq.k_begin, n0, kv_head), p.g.v.stride.seq, rows, p.g.a.head_dim_v);
  }

  STROBE_DEVICE void load_q(int t) {
    const int i0 = block(t) * C.block_m, rows = seq.len_q - i0;
    load(q_tile(t), row(p.g.q, seq.q_begin, i0, head(t)), p.g.q.stride.seq, rows, p.g.a.head_dim);
    load(do_tile(t), row(p.g.dout, seq.q_begin, i0, head(t)), p.g.dout.stride.seq, rows,
         p.g.a.head_dim_v);
    const int thread = static_cast<int>(isa::thread_id());
    constexpr int kPieces = C.block_m / 4;
    static_assert(2 * kPieces <= kThreads);
    if (thread < kPieces) {
      isa::cp_async_16(lse_at(t, 4 * thread), p.lse2 + padded_row(t) + 4 * thread, true);
    } else if (thread < 2 * kPieces) {
      const int row = 4 * (thread - kPieces);
      isa::cp_async_16(delta_at(t, row), p.delta + padded_row(t) + row, true);
    }
  }

  // Through the tiles of K and V, so that device memory is written 16 bytes a lane.
  STROBE_DEVICE void store(WarpDkv& dk, const WarpDkv& dv) {
    const int keys = warp / C.dkv.cols * (C.block_n / C.dkv.rows);
    const int dims = warp % C.dkv.cols * (C.head_dim / C.dkv.cols);
    dk.for_each([&](f32& x, int, int) { x *= p.g.a.scale; });
    store_p(k_tile(), dk, keys, dims);
    store_p(v_tile(), dv, keys, dims);
    isa::cta_sync();
    store_tile(k_tile(), p.g.dk, p.g.a.head_dim);
    store_tile(v_tile(), p.g.dv, p.g.a.head_dim_v);
  }

  STROBE_DEVICE void store_tile(const KTile& tile, const TensorArg& x, int dim) {
    const int rows = rows_k(p, b, seq) - n0;
    for (u32 c = isa::thread_id(); c < C.block_n * KTile::kChunks; c += kThreads) {
      const int r = static_cast<int>(c / KTile::kChunks);
      const u32 chunk = c % KTile::kChunks;
      if (r >= rows) break;
      const auto v = isa::ld_shared<Vec<T, 8>>(tile.at(r, chunk));
      store_chunk(const_cast<T*>(row(x, seq.k_begin, n0 + r, kv_head)), chunk, v, dim,
                  !kFull || p.g.a.vector_loads);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA2_BWD_H_
