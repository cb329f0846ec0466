// FlashAttention-2, forward, for mma.sync machines (Ampere and later).
//
// One CTA takes block_m query rows of one head (or of a group's heads, packed) and walks over the
// keys; its warps split the rows (split-Q), so none exchanges anything with another. Per block j,
// last to first:
//
//     wait for K_j, V_j                 all threads, one barrier
//     start loading K_(j-1), V_(j-1)    cp.async, into the other stage
//     S = Q K_j^T                       mma.sync, float32
//     mask S                            in blocks that the band or the sequence's end cuts
//     P = exp(S - m), l, O *= rescale   OnlineSoftmax, O un-normalised
//     O += P V_j
//
// and once at the end O / l, LSE = m + log l. (FlashAttention-2, algorithm 1.)
#ifndef STROBE_SRC_KERNELS_FA2_FWD_H_
#define STROBE_SRC_KERNELS_FA2_FWD_H_

#include "core/scheduler.h"
#include "kernels/fa2_config.h"
#include "kernels/params.h"
#include "tile/copy.h"
#include "tile/element.h"
#include "tile/fragment.h"
#include "tile/modifiers.h"
#include "tile/online_softmax.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::Fa2FwdConfig;
using kernels::Features;
using kernels::ForwardParams;

template <Fa2FwdConfig C>
struct Fa2Fwd {
  using Params = ForwardParams;
  using T = Element<C.dtype>;
  using QTile = SmemTile<T, C.block_m, C.head_dim>;
  using KTile = SmemTile<T, C.block_n, C.head_dim>;
  using WarpS = Accumulator<C.warp_rows(), C.block_n>;
  using WarpO = Accumulator<C.warp_rows(), C.head_dim>;
  static constexpr int kThreads = C.warps * 32;
  static constexpr int kMinCtas = C.min_ctas;
  static constexpr int kRows = WarpS::kRowsPerLane;
  static constexpr bool kFull = C.features == Features::kFull;

  // Shared memory: Q (later O), then K and V of each stage.
  static constexpr int kSharedBytes = QTile::kBytes + 2 * C.stages * KTile::kBytes;
  STROBE_DEVICE static QTile q_tile() { return {isa::shared_base()}; }
  STROBE_DEVICE static KTile k_tile(int stage) {
    return {isa::shared_base() + QTile::kBytes + 2 * stage * KTile::kBytes};
  }
  STROBE_DEVICE static KTile v_tile(int stage) { return {k_tile(stage).base + KTile::kBytes}; }

  STROBE_DEVICE static void run(const Params& p) {
    const core::LongestFirst order = {
        p.m_blocks, static_cast<u32>(p.a.batch * (p.a.heads / p.a.pack)), p.heads_in_l2};
    const core::TileIndex index = order(isa::cta_id());
    const QueryTile tile(p.a, index.block, index.head_batch, C.block_m);
    if (tile.query(0) >= tile.seq.rows_q) return;
    Fa2Fwd(p, tile).attend();
  }

 private:
  const Params& p;
  const QueryTile& tile;
  const u32 lane;
  const int warp_row;  // first row of this warp
  core::TileKeys keys;

  STROBE_DEVICE Fa2Fwd(const Params& params, const QueryTile& t)
      : p(params),
        tile(t),
        lane(isa::lane_id()),
        warp_row(static_cast<int>(isa::warp_id()) * C.warp_rows()),
        keys(core::tile_keys(t.seq, t.query(0), t.last_query(C.block_m))) {}

  STROBE_DEVICE void attend() {
    WarpO o;
    o.clear();
    OnlineSoftmax<kRows> softmax(kFull ? 1.0f : p.a.scale);
    const int first = keys.any.begin / C.block_n;
    const int end = keys.any.empty() ? first : ceil_div(keys.any.end, C.block_n);
    if (end > first) {
      load_q();
      load_kv(end - 1, 0);
    }
    int stage = 0;
    for (int j = end - 1; j >= first; --j) {
      isa::cp_async_wait<0>();
      isa::cta_sync();  // K_j and V_j are there; the other stage is read by nobody
      const int next = C.stages == 1 ? 0 : 1 - stage;
      if (C.stages > 1 && j > first) load_kv(j - 1, next);

      WarpS s;
      s.clear();
      mma<T, C.head_dim>(
          s, [&](int m, int k) { return load_a(q_tile(), warp_row + 16 * m, k, lane); },
          [&](int n, int k) { return load_b(k_tile(stage), 16 * n, k, lane); });
      modify_and_mask(s, j * C.block_n);
      softmax.step(s, o);
      drop(s, j * C.block_n);
      mma<T, C.block_n>(
          o, [&](int m, int k) { return as_a<T>(s, m, k); },
          [&](int n, int k) { return load_b_transposed(v_tile(stage), 16 * n, k, lane); });

      if (C.stages == 1 && j > first) {
        isa::cta_sync();
        load_kv(j - 1, 0);
      }
      stage = next;
    }
    finish(o, softmax);
  }

  STROBE_DEVICE void load_q() {
    const T* q = static_cast<const T*>(p.q.data);
    copy_tile<kThreads>(
        q_tile(),
        [&](int row) {
          const int i = tile.query(row);
          return i < tile.seq.len_q ? q + tile.offset(p.q.stride, i, tile.head_of(row)) : nullptr;
        },
        p.a.head_dim, p.a.vector_loads);
  }

  // Keys that no row of the tile sees are zeros: nothing of them reaches an output, NaN neither.
  STROBE_DEVICE void load_kv(int j, int stage) {
    const auto row = [&](const TensorArg& t) {
      const T* base = static_cast<const T*>(t.data) + tile.b * t.stride.batch +
                      tile.seq.k_begin * t.stride.seq + tile.kv_head * t.stride.head;
      return [=, this](int r) -> const T* {
        const int key = j * C.block_n + r;
        return key >= keys.any.begin && key < keys.any.end ? base + key * t.stride.seq : nullptr;
      };
    };
    copy_tile<kThreads>(k_tile(stage), row(p.k), p.a.head_dim, p.a.vector_loads);
    copy_tile<kThreads>(v_tile(stage), row(p.v), p.a.head_dim_v, p.a.vector_loads);
    isa::cp_async_commit();
  }

  STROBE_DEVICE int row(int i) const { return warp_row + WarpS::row(i, lane); }

  // Scores to their final values, then -inf where the row does not see the key.
  STROBE_DEVICE void modify_and_mask(WarpS& s, int key0) {
    const bool whole = key0 >= keys.all.begin && key0 + C.block_n <= keys.all.end;
    if constexpr (!kFull) {
      if (whole) return;
    }
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = tile.query(row(i));
      const core::Keys32 range = tile.seq.keys(query);
      const int begin = range.begin - key0, end = range.end - key0;
      if constexpr (kFull) {
        modify_row(s, i, query, key0, begin, end);
      } else {
        for_row(s, i, [&](f32& x, int col) {
          if (col < begin || col >= end) x = -core::infinity();
        });
      }
    }
  }

  STROBE_DEVICE void modify_row(WarpS& s, int i, int query, int key0, int begin, int end) {
    const RowModifiers<T> modifiers(p.a.mod, tile.b, tile.head_of(row(i)),
                                    query < tile.seq.len_q ? query : 0, tile.seq.band.offset);
    for_row(s, i, [&](f32& x, int col) {
      x = col >= begin && col < end ? modifiers.score(x * p.a.scale, key0 + col)
                                    : -core::infinity();
    });
  }

  // P times the dropout factors; l, and so LSE, is of P before.
  STROBE_DEVICE void drop(WarpS& s, int key0) {
    if constexpr (kFull) {
      if (p.a.mod.keep_threshold == 0) return;
      STROBE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const u64 batch_head = static_cast<u64>(tile.b) * p.a.heads + tile.head_of(row(i));
        const RowDropout dropout(p.a.mod, batch_head, tile.query(row(i)));
        STROBE_UNROLL
        for (int n = 0; n < WarpS::kNTiles; ++n) {
          f32 first, second;
          dropout.pair(p.a.mod, key0 + WarpS::col(2 * n, lane), first, second);
          s.x[i / 2][n][2 * (i % 2)] *= first;
          s.x[i / 2][n][2 * (i % 2) + 1] *= second;
        }
      }
    }
  }

  // f(element, column of the block) over this lane's elements of its i-th row.
  template <class F>
  STROBE_DEVICE void for_row(WarpS& s, int i, F f) {
    STROBE_UNROLL
    for (int n = 0; n < WarpS::kNTiles; ++n) {
      STROBE_UNROLL
      for (int r = 0; r < 2; ++r) f(s.x[i / 2][n][2 * (i % 2) + r], WarpS::col(2 * n + r, lane));
    }
  }

  STROBE_DEVICE void finish(WarpO& o, OnlineSoftmax<kRows>& softmax) {
    softmax.finish();
    const f32* sinks = p.a.sinks;
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = tile.query(row(i));
      const bool inside = query < tile.seq.len_q;
      const int h = tile.head_of(row(i));
      if (sinks && inside) softmax.add_sink(i, isa::ld_global(sinks + h));
      if (p.lse && lane % 4 == 0 && query < tile.seq.rows_q) {
        isa::st_global(p.lse + tile.offset(p.lse_stride, query, h), softmax.lse(i));
      }
      const f32 inverse = inside ? softmax.inverse(i) : 0.0f;
      isa::count(core::Op::kRescale, C.head_dim / 4);
      STROBE_UNROLL
      for (int n = 0; n < WarpO::kNTiles; ++n) {
        o.x[i / 2][n][2 * (i % 2)] *= inverse;
        o.x[i / 2][n][2 * (i % 2) + 1] *= inverse;
      }
    }
    store_o(o);
  }

  // Through the warp's own rows of Q's tile, so that device memory is written 16 bytes a lane.
  STROBE_DEVICE void store_o(const WarpO& o) {
    const QTile buffer = q_tile();
    if (keys.any.empty()) isa::cp_async_wait<0>();
    isa::warp_sync();  // every lane's reads of Q are done
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int n = 0; n < WarpO::kNTiles; ++n) {
        const auto& x = o.x[i / 2][n];
        isa::st_shared(buffer.at(row(i), n) + 4 * (lane % 4),
                       isa::pack<T>(x[2 * (i % 2)], x[2 * (i % 2) + 1]));
      }
    }
    isa::warp_sync();
    T* base = static_cast<T*>(p.o.data);
    constexpr int kChunks = C.warp_rows() * QTile::kChunks;
    for (u32 c = lane; c < kChunks; c += kWarpThreads) {
      const int r = warp_row + static_cast<int>(c / QTile::kChunks);
      const u32 chunk = c % QTile::kChunks;
      const int query = tile.query(r);
      if (query >= tile.seq.rows_q) continue;
      const auto v = isa::ld_shared<Vec<T, 8>>(buffer.at(r, chunk));
      store_chunk(base + tile.offset(p.o.stride, query, tile.head_of(r)), chunk, v, p.a.head_dim_v,
                  p.a.vector_loads);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA2_FWD_H_
