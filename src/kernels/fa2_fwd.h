// FlashAttention-2, forward, for mma.sync machines (Ampere and later).
//
// One CTA takes block_m query rows of one head (or of a group's heads, packed) and walks over the
// keys, last block first; its warps split the rows (split-Q), so none exchanges anything with
// another. The walk is a pipeline: the softmax of block j is worked on while the tensor core
// multiplies P and V of the block before.
//
//     tensor core    S = Q K_j^T            O += P V_(j+1)              S = Q K_(j-1)^T ...
//     warp           mask, m                P_j = exp(S - m), l         ...
//     copies         K_(j-1), V_j on their way
//
// and once at the end O / l, LSE = m + log l. (FlashAttention-2, algorithm 1; the overlap within a
// warp is FlashAttention-3's, section 3.2, here on synchronous instructions.)
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

using kernels::fa2_fwd_config;
using kernels::fa2_fwd_short_config;
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
  using Loader = BlockLoader<C.warps * 32, KTile, T>;
  using WarpP = OperandA<T, C.warp_rows(), C.block_n>;
  static constexpr int kThreads = C.warps * 32;
  static constexpr int kMinCtas = C.min_ctas;
  static constexpr int kBlockM = C.block_m, kBlockN = C.block_n;
  static constexpr int kRows = WarpS::kRowsPerLane;
  static constexpr int kPvSteps = C.block_n / 16 * C.head_dim / 16;
  static constexpr bool kFull = C.features == Features::kFull;
  using Softmax = OnlineSoftmax<kRows, kFull ? Units::kNatural : Units::kLog2>;

  // Shared memory: Q (later O), then `stages` blocks each of K and V: block j in place j mod
  // stages.
  static constexpr int kAhead = C.stages - 1;  // K of this many blocks ahead is on its way
  static_assert((C.stages & kAhead) == 0, "stages is a power of two");
  static constexpr int kSharedBytes = QTile::kBytes + 2 * C.stages * KTile::kBytes;
  STROBE_DEVICE static QTile q_tile() { return {isa::shared_base()}; }
  STROBE_DEVICE static KTile k_tile(int j) {
    return {isa::shared_base() + QTile::kBytes + (j & kAhead) * KTile::kBytes};
  }
  STROBE_DEVICE static KTile v_tile(int j) { return {k_tile(j).base + C.stages * KTile::kBytes}; }

  STROBE_DEVICE static void run(const Params& p) {
    const QueryTile tile = tile_of(p, isa::cta_id());
    if (tile.query(0) < tile.seq.rows_q) Fa2Fwd(p, tile).attend();
  }

 private:
  const Params& p;
  const QueryTile& tile;
  const u32 lane;
  const int warp_row;  // first row of this warp
  const core::TileKeys keys;

  STROBE_DEVICE static QueryTile tile_of(const Params& p, u32 cta) {
    const u32 head_batches = static_cast<u32>(p.a.batch * p.a.packed_heads);
    const core::TileIndex index = core::LongestFirst{p.m_blocks, head_batches, p.heads_in_l2}(cta);
    return QueryTile(p.a, index.block, index.head_batch, C.block_m);
  }

  STROBE_DEVICE Fa2Fwd(const Params& params, const QueryTile& t)
      : p(params),
        tile(t),
        lane(isa::lane_id()),
        warp_row(static_cast<int>(isa::warp_id()) * C.warp_rows()),
        keys(core::tile_keys(t.seq, t.query(0), t.last_query(C.block_m))) {}

  STROBE_DEVICE void attend() {
    WarpO o;
    o.clear();
    Softmax softmax(kFull ? 1.0f : p.a.scale);
    if (!keys.any.empty()) walk(o, softmax);
    finish(o, softmax, tile_of(p, isa::opaque(isa::cta_id())));
  }

  STROBE_DEVICE void walk(WarpO& o, Softmax& softmax) {
    const int first = keys.any.begin / C.block_n, last = (keys.any.end - 1) / C.block_n;
    Loader k_loader = loader(p.k, last, p.a.head_dim), v_loader = loader(p.v, last, p.a.head_dim_v);
    WarpS s;
    WarpP prob;

    // S of block j; meanwhile K and V of the next blocks are on their way.
    const auto multiply_qk = [&](int j) {
      const auto multiply = [&](auto between) {
        mma<T, C.head_dim, Accumulate::kNo>(s, ReadA(q_tile(), lane, warp_row),
                                            ReadB(k_tile(j), lane), between);
      };
      if constexpr (C.stages > 1) {
        arrived<kAhead - 1>();
        multiply([&](int i) {
          if (i == C.fetch_at) fetch(k_loader, j - kAhead, v_loader, j - kAhead + 1);
        });
      } else {  // V comes while S is multiplied, K while P V is
        arrived<0>();
        if (j < last) fetch(v_loader, v_tile(j + 1), j + 1);
        multiply([](int) {});
        arrived<0>();
        fetch(k_loader, k_tile(j - 1), j - 1);
      }
    };
    const auto step = [&](int j, auto cut) {
      multiply_qk(j);
      if (cut.value) modify_and_mask(s, j * C.block_n);
      const bool moved = softmax.update_max(s);
      multiply_pv(o, prob, j + 1, [&](int i) { softmax.template exponentiate<kPvSteps>(s, i); });
      if (moved) softmax.rescale(o);
      drop(s, j);
      prob.round(s);
    };

    load_q();
    fetch(k_loader, k_tile(last), last);
    STROBE_UNROLL
    for (int ahead = 1; ahead < kAhead; ++ahead) {
      fetch(k_loader, last - ahead, v_loader, last - ahead + 1);
    }
    multiply_qk(last);
    modify_and_mask(s, last * C.block_n);
    softmax.update_max(s);  // O is still zero
    softmax.template exponentiate<1>(s, 0);
    drop(s, last);
    prob.round(s);

    // Blocks that the band or an end of the sequence cuts, then those that every row sees whole,
    // then cut ones again.
    int j = last - 1;
    while (j >= first) {
      STROBE_NO_UNROLL
      for (; j >= first && !whole(j); --j) step(j, Constant<true>());
      STROBE_NO_UNROLL
      for (; j >= first && whole(j); --j) step(j, Constant<false>());
    }
    arrived<0>();
    if constexpr (C.stages == 1) {
      fetch(v_loader, v_tile(first), first);
      arrived<0>();
    }
    multiply_pv(o, prob, first, [](int) {});
  }

  // All but the last kPending groups of copies are there, and what the next ones will take the
  // place of is read no more.
  template <int kPending>
  STROBE_DEVICE void arrived() {
    isa::cp_async_wait<kPending>();
    isa::cta_sync();
  }

  STROBE_DEVICE bool whole(int j) const {
    return !kFull && j * C.block_n >= keys.all.begin && (j + 1) * C.block_n <= keys.all.end;
  }

  template <class Between>
  STROBE_DEVICE void multiply_pv(WarpO& o, const WarpP& prob, int j, Between between) {
    mma<T, C.block_n, Accumulate::kYes>(
        o, [&](int m, int k) { return prob.x[m][k]; }, ReadBTransposed(v_tile(j), lane), between);
  }

  STROBE_DEVICE void load_q() {
    const T* q = static_cast<const T*>(p.q.data);
    if (!kFull && tile.pack == 1) {
      BlockLoader<kThreads, QTile, T> rows(q + tile.offset(p.q.stride, tile.first_row, tile.head),
                                           p.q.stride.seq, p.a.head_dim, 1);
      rows.load(q_tile(), 0, tile.seq.len_q - tile.first_row);
      return;
    }
    gather_tile<kThreads>(
        q_tile(),
        [&](int row) {
          const int i = tile.query(row);
          return i < tile.seq.len_q ? q + tile.offset(p.q.stride, i, tile.head_of(row)) : nullptr;
        },
        p.a.head_dim, !kFull || p.a.vector_loads);
  }

  STROBE_DEVICE Loader loader(const TensorArg& t, int j, int dim) const {
    return {static_cast<const T*>(t.data) + tile.b * t.stride.batch +
                (tile.seq.k_begin + j * C.block_n) * t.stride.seq + tile.kv_head * t.stride.head,
            t.stride.seq, dim, -1};
  }
  STROBE_DEVICE void fetch(Loader& loader, const KTile& to, int j) {
    load(loader, to, j);
    isa::cp_async_commit();
  }
  STROBE_DEVICE void fetch(Loader& k_loader, int k_block, Loader& v_loader, int v_block) {
    load(k_loader, k_tile(k_block), k_block);
    fetch(v_loader, v_tile(v_block), v_block);
  }
  // Keys that no row of the tile sees are zeros: nothing of them reaches an output, NaN neither.
  STROBE_DEVICE void load(Loader& loader, const KTile& to, int j) {
    const int begin = keys.any.begin - j * C.block_n, end = keys.any.end - j * C.block_n;
    if (!kFull || p.a.vector_loads) {
      loader.load(to, begin, end);
    } else {
      loader.load_scalar(to, begin, end);
    }
  }

  STROBE_DEVICE int row(int i) const { return warp_row + WarpS::row(i, lane); }

  // Scores to their final values, then -inf where the row does not see the key.
  STROBE_DEVICE void modify_and_mask(WarpS& s, int key0) {
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
  STROBE_DEVICE void drop(WarpS& s, int j) {
    if constexpr (kFull) {
      if (p.a.mod.keep_threshold == 0) return;
      STROBE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const u64 batch_head = static_cast<u64>(tile.b) * p.a.heads + tile.head_of(row(i));
        const RowDropout dropout(p.a.mod, batch_head, tile.query(row(i)));
        STROBE_UNROLL
        for (int n = 0; n < WarpS::kNTiles; ++n) {
          f32 first, second;
          dropout.pair(p.a.mod, j * C.block_n + WarpS::col(2 * n, lane), first, second);
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

  // The tile is worked out anew, so that it takes no registers while keys are walked over.
  STROBE_DEVICE void finish(WarpO& o, Softmax& softmax, const QueryTile& tile) {
    softmax.finish();
    const f32* sinks = p.a.sinks;
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = tile.query(row(i));
      const bool inside = query < tile.seq.len_q;
      const int h = tile.head_of(row(i));
      if (sinks && inside) softmax.add_sink(i, isa::ld_global(sinks + h));
      if (p.lse && lane % 4 == 0 && query < tile.seq.rows_q) {
        isa::st_global(p.lse + tile.offset(p.lse_stride, query, h),
                       inside ? softmax.lse(i) : -core::infinity());
      }
      const f32 inverse = softmax.inverse(i);
      isa::count(core::Op::kRescale, C.head_dim / 4);
      STROBE_UNROLL
      for (int n = 0; n < WarpO::kNTiles; ++n) {
        STROBE_UNROLL
        for (int r = 2 * (i % 2); r < 2 * (i % 2) + 2; ++r) {
          f32& x = o.x[i / 2][n][r];
          x = inside ? x * inverse : 0.0f;  // whatever lies in rows outside, infinities included
        }
      }
    }
    store_o(o, tile);
  }

  // Through the warp's own rows of Q's tile, so that device memory is written 16 bytes a lane.
  STROBE_DEVICE void store_o(const WarpO& o, const QueryTile& tile) {
    const QTile buffer = q_tile();
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
    // Plain rows without packing lie at equal distances; a pass of the warp takes whole ones.
    if constexpr (!kFull && kWarpThreads % QTile::kChunks == 0) {
      if (tile.pack == 1) {
        constexpr int kPerPass = kWarpThreads / QTile::kChunks;
        const int r0 = warp_row + static_cast<int>(lane) / QTile::kChunks;
        const u32 chunk = lane % QTile::kChunks;
        T* to = base + tile.offset(p.o.stride, tile.first_row + r0, tile.head);
        STROBE_UNROLL
        for (int r = 0; r < C.warp_rows(); r += kPerPass) {
          const auto v = isa::ld_shared<Vec<T, 8>>(buffer.at(r0 + r, chunk));
          if (tile.first_row + r0 + r < tile.seq.rows_q)
            store_chunk(to, chunk, v, p.a.head_dim_v, true);
          to += kPerPass * p.o.stride.seq;
        }
        return;
      }
    }
    STROBE_NO_UNROLL
    for (u32 c = lane; c < C.warp_rows() * QTile::kChunks; c += kWarpThreads) {
      const int r = warp_row + static_cast<int>(c / QTile::kChunks);
      const u32 chunk = c % QTile::kChunks;
      const int query = tile.query(r);
      if (query >= tile.seq.rows_q) continue;
      const auto v = isa::ld_shared<Vec<T, 8>>(buffer.at(r, chunk));
      store_chunk(base + tile.offset(p.o.stride, query, tile.head_of(r)), chunk, v, p.a.head_dim_v,
                  !kFull || p.a.vector_loads);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA2_FWD_H_
