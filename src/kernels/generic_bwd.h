// Generic backward, for what generic_fwd.h takes. Each pass owns its outputs and adds to them in a
// fixed order, without atomics, so that the results have the same bits every time:
//
//     GenericDelta   D_i = sum dO O - dLSE_i, and the terms of dSink
//     GenericDq      owns query rows, walks over keys:     dQ = scale dS K
//     GenericDkv     owns keys, walks over the queries of all heads of the group:
//                    dV = (Z P)^T dO, dK = scale dS^T Q
//     GenericDbias   (generic_dbias.h) owns a tile of the bias, walks over what it broadcasts to
//
// each with P = exp(S - LSE) and dS = P (Z dP - D) recomputed from Q, K, V and dO.
#ifndef STROBE_SRC_KERNELS_GENERIC_BWD_H_
#define STROBE_SRC_KERNELS_GENERIC_BWD_H_

#include "kernels/generic_tile.h"
#include "tile/element.h"

namespace strobe::STROBE_TARGET {

using kernels::GenericBackwardParams;
using kernels::Gradients;

// Element (h, row) of the workspace's [heads, rows of q].
STROBE_DEVICE i64 delta_at(const GenericBackwardParams& p, const OwnedRows& own, int h, i64 q) {
  const i64 row =
      p.g.a.lengths.cu_q ? own.begin + q : static_cast<i64>(own.b) * p.g.a.lengths.seqlen_q + q;
  return h * p.delta_head + row;
}

// D of 64 query rows per CTA, eight per warp. tiles: generic_tiles(queries, 64) times heads.
template <Dtype kDtype>
struct GenericDelta {
  using Params = GenericBackwardParams;
  using T = Element<kDtype>;
  static constexpr int kThreads = kGenericThreads, kMinCtas = 1, kSharedBytes = 0;
  static constexpr int kOwn = 64;

  STROBE_DEVICE static void run(const Params& p) {
    const u64 per_head = p.tiles / p.g.a.heads;
    const int warp = static_cast<int>(isa::warp_id());
    for (u64 t = isa::cta_id(); t < p.tiles; t += isa::grid_size()) {
      const OwnedRows own = owned_rows(p.g.a, false, t % per_head, kOwn);
      const int h = static_cast<int>(t / per_head);
      for (int q = own.first + warp; q < own.first + kOwn; q += 8) {
        if (own.valid() && q < own.rows) row(p, own, h, q);
      }
    }
  }

 private:
  STROBE_DEVICE static void row(const Params& p, const OwnedRows& own, int h, int q) {
    const u32 lane = isa::lane_id();
    const bool inside = q < own.length;
    f32 d = 0;
    if (inside) {
      const T* o = row_at<T>(p.g.o, own.b, own.begin + q, h);
      const T* dout = row_at<T>(p.g.dout, own.b, own.begin + q, h);
      for (int x = static_cast<int>(lane); x < p.g.a.head_dim_v; x += kWarpThreads) {
        d += to_real(isa::ld_global(o + x)) * to_real(isa::ld_global(dout + x));
      }
    }
    STROBE_UNROLL
    for (u32 lanes = 1; lanes < kWarpThreads; lanes *= 2) d += isa::shfl_xor(d, lanes);
    if (lane != 0) return;
    if (inside && p.g.dlse) {
      d -= isa::ld_global(p.g.dlse + offset_of(p.g.dlse_stride, own.b, own.begin + q, h));
    }
    const i64 at = delta_at(p, own, h, q);
    isa::st_global(p.delta + at, d);
    if (!p.sink_term) return;
    const f32 lse =
        inside ? isa::ld_global(p.g.lse + offset_of(p.g.lse_stride, own.b, own.begin + q, h))
               : -core::infinity();
    const f32 sink = isa::ld_global(p.g.a.sinks + h);
    isa::st_global(p.sink_term + at, lse == -core::infinity() ? 0.0f : -exp_of(sink - lse) * d);
  }
};

// What the gradients of a tile of scores need to know of its queries.
struct QueryStatistics {
  f32 lse, delta;
  bool inside;  // a query with a finite LSE: all others have no gradient

  STROBE_DEVICE QueryStatistics(const GenericBackwardParams& p, const OwnedRows& own, int h,
                                i64 q_begin, int q) {
    lse = q < own.seq.len_q
              ? isa::ld_global(p.g.lse + offset_of(p.g.lse_stride, own.b, q_begin + q, h))
              : -core::infinity();
    inside = lse != -core::infinity();
    delta = 0;
    if (inside) {
      OwnedRows queries = own;
      queries.begin = q_begin;
      delta = isa::ld_global(p.delta + delta_at(p, queries, h, q));
    }
  }
};

// Which elements of the weight tiles score_gradient() turns from q.k into Z P and from dO.v into
// dS.
constexpr int kWeightP = 0, kWeightDs = 1;

// One element: dS is times the softcap's slope if it goes through it. Nothing, however large or
// NaN, comes from what the query does not see.
template <class T>
STROBE_DEVICE void score_gradient(u32 p_at, u32 ds_at, const HeadScores<T>& scores,
                                  const QueryStatistics& query, bool visible, int q, int key,
                                  bool through_cap = true) {
  f32 slope = 1;
  const f32 score = visible && query.inside
                        ? scores.score(isa::ld_shared<f32>(p_at), q, key, &slope)
                        : -core::infinity();
  f32 zp = 0, ds = 0;
  if (score != -core::infinity()) {
    const f32 probability = exp_of(score - query.lse);
    const f32 z = scores.keep_factor(q, key);
    zp = probability * z;
    ds = probability * (z * isa::ld_shared<f32>(ds_at) - query.delta);
    if (through_cap) ds *= slope;
  }
  isa::st_shared(p_at, zp);
  isa::st_shared(ds_at, ds);
}

// All elements of a CTA that owns queries.
template <class T, class Tile>
STROBE_DEVICE void score_gradients(const GenericBackwardParams& p, const OwnedRows& own, int h,
                                   const Tile& tile, int key0, bool through_cap) {
  const ScoreRule<f32> rule = score_rule(p.g.a);
  const HeadScores<T> scores(p.g.a, rule, own.b, h, own.seq.band.offset);
  STROBE_NO_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    const int q = own.first + tile.row(i);
    const core::Keys32 seen = own.seq.keys(q);
    const QueryStatistics query(p, own, h, own.begin, q);
    STROBE_NO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int key = key0 + tile.col(j);
      score_gradient(Tile::weight_at(kWeightP, tile.row(i), tile.col(j)),
                     Tile::weight_at(kWeightDs, tile.row(i), tile.col(j)), scores, query,
                     key >= seen.begin && key < seen.end, q, key, through_cap);
    }
  }
}

template <GenericConfig C>
struct GenericDq {
  using Params = GenericBackwardParams;
  using T = Element<C.dtype>;
  using Tile = GenericTile<C.own_rows, C.max_dim>;
  static constexpr int kThreads = kGenericThreads;
  static constexpr int kMinCtas = C.max_dim <= 128 ? 2 : 1;
  static constexpr int kSharedBytes = Tile::shared_bytes(2);

  // tiles: generic_tiles(queries) times heads.
  STROBE_DEVICE static void run(const Params& p) {
    const u64 per_head = p.tiles / p.g.a.heads;
    for (u64 t = isa::cta_id(); t < p.tiles; t += isa::grid_size()) {
      const OwnedRows own = owned_rows(p.g.a, false, per_head - 1 - t % per_head, C.own_rows);
      if (own.valid()) tile(p, own, static_cast<int>(t / per_head));
    }
  }

 private:
  STROBE_DEVICE static void tile(const Params& p, const OwnedRows& own, int h) {
    const Tile tile = {};
    const Attention& a = p.g.a;
    const int last = core::min(own.first + C.own_rows, own.length) - 1;
    const core::Keys32 any =
        last >= own.first ? core::tile_keys(own.seq, own.first, last).any : core::Keys32{0, 0};
    const int kv_head = h / (a.heads / a.kv_heads);
    const auto queries = [&](const TensorArg& t) {
      return [&](int r) -> const T* {
        const int q = own.first + r;
        return q < own.length ? row_at<T>(t, own.b, own.begin + q, h) : nullptr;
      };
    };
    typename Tile::Output dq;
    Tile::clear(dq);
    for (int key0 = any.begin; key0 < any.end; key0 += kOtherRows) {
      const int count = core::min(kOtherRows, any.end - key0);
      const auto keys = [&](const TensorArg& t) {
        return [&, key0, count](int r) -> const T* {
          return r < count ? row_at<T>(t, own.b, own.seq.k_begin + key0 + r, kv_head) : nullptr;
        };
      };
      typename Tile::Scores s;
      tile.template scores<T>(s, queries(p.g.q), keys(p.g.k), a.head_dim);
      tile.keep(kWeightP, s);
      tile.template scores<T>(s, queries(p.g.dout), keys(p.g.v), a.head_dim_v);
      tile.keep(kWeightDs, s);
      score_gradients<T>(p, own, h, tile, key0, true);
      tile.template add_product<T>(dq, kWeightDs, keys(p.g.k), count, a.head_dim);
    }
    tile.template store<T>(
        dq,
        [&](int r) -> T* {
          const int q = own.first + r;
          return q < own.rows ? row_at<T>(p.g.dq, own.b, own.begin + q, h) : nullptr;
        },
        [&](int i) {
          return QueryStatistics(p, own, h, own.begin, own.first + tile.row(i)).inside ? a.scale
                                                                                       : 0.0f;
        },
        a.head_dim);
  }
};

template <GenericConfig C>
struct GenericDkv {
  using Params = GenericBackwardParams;
  using T = Element<C.dtype>;
  using Tile = GenericTile<C.own_rows, C.max_dim>;
  static constexpr int kThreads = kGenericThreads;
  static constexpr int kMinCtas = C.max_dim <= 128 ? 2 : 1;
  static constexpr int kSharedBytes = Tile::shared_bytes(2);

  // tiles: generic_tiles(keys) times kv_heads.
  STROBE_DEVICE static void run(const Params& p) {
    const u64 per_head = p.tiles / p.g.a.kv_heads;
    for (u64 t = isa::cta_id(); t < p.tiles; t += isa::grid_size()) {
      const OwnedRows own = owned_rows(p.g.a, true, t % per_head, C.own_rows);
      if (own.valid()) GenericDkv(p, own, static_cast<int>(t / per_head)).tile();
    }
  }

 private:
  const Params& p;
  const OwnedRows& own;
  const int kv_head;
  const Tile t = {};

  STROBE_DEVICE GenericDkv(const Params& params, const OwnedRows& o, int head)
      : p(params), own(o), kv_head(head) {}

  STROBE_DEVICE void tile() {
    const Attention& a = p.g.a;
    typename Tile::Output dk, dv;
    Tile::clear(dk);
    Tile::clear(dv);
    const int last = core::min(own.first + C.own_rows, own.length) - 1;
    const core::Keys32 seeing =
        last >= own.first ? queries_of(own.seq, own.first, last) : core::Keys32{0, 0};
    const int group = a.heads / a.kv_heads;
    for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int q0 = seeing.begin; q0 < seeing.end; q0 += kOtherRows) {
        step(dk, dv, h, q0, core::min(kOtherRows, seeing.end - q0));
      }
    }
    store(dk, p.g.dk, a.scale, a.head_dim);
    store(dv, p.g.dv, 1.0f, a.head_dim_v);
  }

  // Queries [q0, q0 + count) of head h.
  STROBE_DEVICE void step(typename Tile::Output& dk, typename Tile::Output& dv, int h, int q0,
                          int count) {
    const Attention& a = p.g.a;
    const auto keys = [&](const TensorArg& x) {
      return [&](int r) -> const T* {
        const int key = own.first + r;
        return key < own.length ? row_at<T>(x, own.b, own.begin + key, kv_head) : nullptr;
      };
    };
    const auto queries = [&](const TensorArg& x) {
      return [&, h, q0, count](int r) -> const T* {
        return r < count ? row_at<T>(x, own.b, own.seq.q_begin + q0 + r, h) : nullptr;
      };
    };
    typename Tile::Scores s;
    t.template scores<T>(s, keys(p.g.k), queries(p.g.q), a.head_dim);
    t.keep(kWeightP, s);
    t.template scores<T>(s, keys(p.g.v), queries(p.g.dout), a.head_dim_v);
    t.keep(kWeightDs, s);
    gradients(h, q0);
    t.template add_product<T>(dv, kWeightP, queries(p.g.dout), count, a.head_dim_v);
    t.template add_product<T>(dk, kWeightDs, queries(p.g.q), count, a.head_dim);
  }

  // As score_gradients(), transposed.
  STROBE_DEVICE void gradients(int h, int q0) {
    const ScoreRule<f32> rule = score_rule(p.g.a);
    const HeadScores<T> scores(p.g.a, rule, own.b, h, own.seq.band.offset);
    STROBE_NO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int q = q0 + t.col(j);
      const core::Keys32 seen = own.seq.keys(q);
      const QueryStatistics query(p, own, h, own.seq.q_begin, q);
      STROBE_NO_UNROLL
      for (int i = 0; i < Tile::kRows; ++i) {
        const int key = own.first + t.row(i);
        score_gradient(Tile::weight_at(kWeightP, t.row(i), t.col(j)),
                       Tile::weight_at(kWeightDs, t.row(i), t.col(j)), scores, query,
                       key >= seen.begin && key < seen.end, q, key);
      }
    }
  }

  STROBE_DEVICE void store(const typename Tile::Output& x, const TensorArg& to, f32 scale,
                           int dim) {
    t.template store<T>(
        x,
        [&](int r) -> T* {
          const int key = own.first + r;
          return key < own.rows ? row_at<T>(to, own.b, own.begin + key, kv_head) : nullptr;
        },
        [&](int i) { return own.first + t.row(i) < own.length ? scale : 0.0f; }, dim);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_GENERIC_BWD_H_
