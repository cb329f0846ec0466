// Generic forward: whatever has no faster row. Float32 arithmetic on f32, bf16 and f16, head
// dimensions up to 512, any stride and alignment, every feature.
//
// The algorithm is FlashAttention-2's (fa2_fwd.h), on the float32 units: a CTA owns a tile of query
// rows and walks over the keys it sees. Per block of 64 keys:
//
//     S = Q K^T               GenericTile::scores, in chunks of the head dimension
//     P = exp(S - m), l, O    m and l belong to the 16 threads of a row
//     O += P V                GenericTile::add_product, in chunks of the value dimension
//
// A sink is where m and l start: a logit without a value vector.
#ifndef STROBE_SRC_KERNELS_GENERIC_FWD_H_
#define STROBE_SRC_KERNELS_GENERIC_FWD_H_

#include "kernels/generic_tile.h"
#include "tile/element.h"

namespace strobe::STROBE_TARGET {

using kernels::GenericForwardParams;

template <GenericConfig C>
struct GenericFwd {
  using Params = GenericForwardParams;
  using T = Element<C.dtype>;
  using Tile = GenericTile<C.own_rows, C.max_dim>;
  static constexpr int kThreads = kGenericThreads;
  static constexpr int kMinCtas = C.max_dim <= 128 ? 2 : 1;
  static constexpr int kSharedBytes = Tile::shared_bytes(1);
  static constexpr int kRows = Tile::kRows;

  STROBE_DEVICE static void run(const Params& p) {
    const u64 per_head = p.tiles / p.f.a.heads;
    for (u64 t = isa::cta_id(); t < p.tiles; t += isa::grid_size()) {
      // From the last tile of each head on: under a causal mask it has the most work.
      const OwnedRows own = owned_rows(p.f.a, false, per_head - 1 - t % per_head, C.own_rows);
      if (own.valid()) GenericFwd(p.f, own, static_cast<int>(t / per_head)).attend();
    }
  }

 private:
  const kernels::ForwardParams& p;
  const OwnedRows& own;
  const int h;
  const Tile tile = {};
  f32 m[kRows], l[kRows];

  STROBE_DEVICE GenericFwd(const kernels::ForwardParams& params, const OwnedRows& o, int head)
      : p(params), own(o), h(head) {}

  STROBE_DEVICE int query(int row) const { return own.first + row; }

  STROBE_DEVICE void attend() {
    const core::Sequence& seq = own.seq;
    const int last = core::min(own.first + C.own_rows, own.length) - 1;
    const core::Keys32 any =
        last >= own.first ? core::tile_keys(seq, own.first, last).any : core::Keys32{0, 0};
    const f32 sink = p.a.sinks ? isa::ld_global(p.a.sinks + h) : -core::infinity();
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      m[i] = sink;
      l[i] = tile.tx == 0 && sink != -core::infinity() ? 1.0f : 0.0f;
    }
    typename Tile::Output o;
    Tile::clear(o);
    const ScoreRule<f32> rule = score_rule(p.a);
    const HeadScores<T> scores(p.a, rule, own.b, h, seq.band.offset);
    const int kv_head = h / (p.a.heads / p.a.kv_heads);
    for (int key0 = any.begin; key0 < any.end; key0 += kOtherRows) {
      const int count = core::min(kOtherRows, any.end - key0);
      const auto rows_of = [&](const TensorArg& t) {
        return [=, &t, this](int r) -> const T* {
          return r < count ? row_at<T>(t, own.b, own.seq.k_begin + key0 + r, kv_head) : nullptr;
        };
      };
      typename Tile::Scores s;
      tile.template scores<T>(s, queries(), rows_of(p.k), p.a.head_dim);
      tile.keep(0, s);
      softmax(o, scores, key0);
      tile.template add_product<T>(o, 0, rows_of(p.v), count, p.a.head_dim_v);
    }
    finish(o);
  }

  STROBE_DEVICE auto queries() const {
    return [this](int r) -> const T* {
      return query(r) < own.length ? row_at<T>(p.q, own.b, own.begin + query(r), h) : nullptr;
    };
  }

  // S becomes P with the dropout factors; m, l and O follow.
  STROBE_DEVICE void softmax(typename Tile::Output& o, const HeadScores<T>& scores, int key0) {
    f32 rescale[kRows] = {};
    STROBE_NO_UNROLL
    for (int i = 0; i < kRows; ++i) {
      Tile::place(rescale, i, softmax_row(scores, i, key0));
    }
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int c = 0; c < Tile::kChunks; ++c) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) o[i][c][r] *= rescale[i];
      }
    }
    isa::count(core::Op::kMax, 4 * kRows);
    isa::count(core::Op::kSum, 4 * kRows);
    isa::count(core::Op::kRescale, kRows * (4 * Tile::kChunks + 1));
  }

  // Of this thread's i-th row; returns the factor for O.
  STROBE_DEVICE f32 softmax_row(const HeadScores<T>& scores, int i, int key0) {
    const int q = query(tile.row(i));
    const core::Keys32 keys = own.seq.keys(q);
    const f32 before = Tile::pick(m, i);
    f32 top = before;
    STROBE_NO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int key = key0 + tile.col(j);
      const u32 at = Tile::weight_at(0, tile.row(i), tile.col(j));
      const f32 s = key >= keys.begin && key < keys.end
                        ? scores.score(isa::ld_shared<f32>(at), q, key)
                        : -core::infinity();
      isa::st_shared(at, s);
      top = isa::max(top, s);
    }
    top = Tile::row_max(top);
    const f32 reference = top == -core::infinity() ? 0.0f : top;
    const f32 rescale = exp_of(before - reference);
    f32 sum = Tile::pick(l, i) * rescale;
    STROBE_NO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const u32 at = Tile::weight_at(0, tile.row(i), tile.col(j));
      const f32 x = exp_of(isa::ld_shared<f32>(at) - reference);
      sum += x;
      isa::st_shared(at, x * scores.keep_factor(q, key0 + tile.col(j)));
    }
    Tile::place(m, i, top);
    Tile::place(l, i, sum);
    return rescale;
  }

  STROBE_DEVICE void finish(const typename Tile::Output& o) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      l[i] = Tile::row_sum(l[i]);
      const int q = query(tile.row(i));
      const bool nothing = q >= own.length || l[i] == 0;
      if (p.lse && tile.tx == 0 && q < own.rows) {
        isa::st_global(p.lse + offset_of(p.lse_stride, own.b, own.begin + q, h),
                       nothing ? -core::infinity() : static_cast<f32>(m[i] + core::log64(l[i])));
      }
      l[i] = nothing ? 0.0f : 1.0f / l[i];
    }
    tile.template store<T>(
        o,
        [this](int r) -> T* {
          return query(r) < own.rows ? row_at<T>(p.o, own.b, own.begin + query(r), h) : nullptr;
        },
        [this](int i) { return l[i]; }, p.a.head_dim_v);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_GENERIC_FWD_H_
