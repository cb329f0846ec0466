// Gradients of what scores have in common: the bias, summed over the dimensions along which it
// broadcasts, and the sinks. Both owned and summed in a fixed order, without atomics.
#ifndef STROBE_SRC_KERNELS_GENERIC_DBIAS_H_
#define STROBE_SRC_KERNELS_GENERIC_DBIAS_H_

#include "kernels/generic_bwd.h"

namespace strobe::STROBE_TARGET {

static_assert(kernels::kDbiasKeys == kOtherRows);

// A CTA owns 64 x 64 elements of dBias and adds up dS over all sequences, heads and, where
// one row serves them all, queries.
template <Dtype kDtype>
struct GenericDbias {
  using Params = GenericBackwardParams;
  using T = Element<kDtype>;
  using Tile = GenericTile<kernels::kDbiasRows, 64>;
  using Scores = typename Tile::Scores;
  static constexpr int kOwn = kernels::kDbiasRows;
  static constexpr int kThreads = kGenericThreads, kMinCtas = 2;
  static constexpr int kSharedBytes = Tile::shared_bytes(2);

  // tiles: bias_batch * bias_heads * ceil(bias_rows / 64) * ceil(bias_keys / 64).
  STROBE_DEVICE static void run(const Params& p) {
    const auto key_tiles = static_cast<u64>(ceil_div(p.bias_keys, kOtherRows));
    const auto row_tiles = static_cast<u64>(ceil_div(p.bias_rows, kOwn));
    for (u64 t = isa::cta_id(); t < p.tiles; t += isa::grid_size()) {
      const u64 head = t / key_tiles / row_tiles;
      GenericDbias(p, static_cast<int>(head / p.bias_heads), static_cast<int>(head % p.bias_heads),
                   static_cast<int>(t / key_tiles % row_tiles) * kOwn,
                   static_cast<int>(t % key_tiles) * kOtherRows)
          .tile();
    }
  }

 private:
  const Params& p;
  const int bias_b, bias_h, row0, key0;  // of the bias
  const Tile t = {};

  STROBE_DEVICE GenericDbias(const Params& params, int b, int h, int row, int key)
      : p(params), bias_b(b), bias_h(h), row0(row), key0(key) {}

  STROBE_DEVICE void tile() {
    const Attention& a = p.g.a;
    const bool one_row = p.bias_rows == 1;
    Scores sum;
    Tile::clear(sum);
    const int b_end = p.bias_batch == 1 ? a.batch : bias_b + 1;
    const int h_end = p.bias_heads == 1 ? a.heads : bias_h + 1;
    for (int b = bias_b; b < b_end; ++b) {
      OwnedRows own = {};
      own.seq = sequence(a, b);
      own.b = b;
      own.begin = own.seq.q_begin;
      own.length = own.seq.len_q;
      if (key0 >= own.seq.len_k) continue;
      const int q_end = one_row ? own.length : core::min(own.length, row0 + 1);
      for (int h = bias_h; h < h_end; ++h) {
        for (own.first = row0; own.first < q_end; own.first += kOwn) add(sum, own, h);
      }
    }
    if (one_row) {
      store_sum(sum);
    } else {
      store(sum);
    }
  }

  // dS of 64 queries of head h, where they see the keys at all.
  STROBE_DEVICE void add(Scores& sum, const OwnedRows& own, int h) {
    const Attention& a = p.g.a;
    const int last = core::min(own.first + kOwn, own.length) - 1;
    const core::Keys32 any = core::tile_keys(own.seq, own.first, last).any;
    if (key0 >= any.end || key0 + kOtherRows <= any.begin) return;
    const auto queries = [&](const TensorArg& x) {
      return [&](int r) -> const T* {
        const int q = own.first + r;
        return q <= last ? row_at<T>(x, own.b, own.begin + q, h) : nullptr;
      };
    };
    const auto keys = [&](const TensorArg& x) {
      return [&](int r) -> const T* {
        const int key = key0 + r;
        return key >= any.begin && key < any.end
                   ? row_at<T>(x, own.b, own.seq.k_begin + key, h / (a.heads / a.kv_heads))
                   : nullptr;
      };
    };
    Scores s;
    t.template scores<T>(s, queries(p.g.q), keys(p.g.k), a.head_dim);
    t.keep(kWeightP, s);
    t.template scores<T>(s, queries(p.g.dout), keys(p.g.v), a.head_dim_v);
    t.keep(kWeightDs, s);
    // The bias joins after the softcap, whose slope is no factor here.
    score_gradients<T>(p, own, h, t, key0, false);
    STROBE_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      STROBE_UNROLL
      for (int j = 0; j < 4; ++j) {
        sum[i][j] += isa::ld_shared<f32>(Tile::weight_at(kWeightDs, t.row(i), t.col(j)));
      }
    }
  }

  STROBE_DEVICE f32* out(int row) const {
    return p.g.dbias + ((bias_b * p.bias_heads + bias_h) * p.bias_rows + row) * p.bias_keys;
  }

  STROBE_DEVICE void store(const Scores& sum) const {
    STROBE_UNROLL
    for (int i = 0; i < Tile::kRows; ++i) {
      const int row = row0 + t.row(i);
      STROBE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int key = key0 + t.col(j);
        if (row < p.bias_rows && key < p.bias_keys) isa::st_global(out(row) + key, sum[i][j]);
      }
    }
  }

  // Over all rows of the tile.
  STROBE_DEVICE void store_sum(Scores& sum) const {
    isa::cta_sync();
    t.keep(kWeightDs, sum);
    isa::cta_sync();
    const int c = static_cast<int>(isa::thread_id());
    if (c >= kOtherRows || key0 + c >= p.bias_keys) return;
    f32 total = 0;
    for (int r = 0; r < kOwn; ++r) total += isa::ld_shared<f32>(Tile::weight_at(kWeightDs, r, c));
    isa::st_global(out(0) + key0 + c, total);
  }
};

// dSink of one head per CTA: the sum of its rows' terms.
struct GenericDsink {
  using Params = GenericBackwardParams;
  static constexpr int kThreads = kGenericThreads, kMinCtas = 1;
  static constexpr int kSharedBytes = 8 * kThreads;

  STROBE_DEVICE static void run(const Params& p) {
    const u32 thread = isa::thread_id();
    const auto heads = static_cast<u32>(p.g.a.heads);
    for (u32 h = isa::cta_id(); h < heads; h += isa::grid_size()) {
      double sum = 0;
      for (i64 row = thread; row < p.delta_head; row += kThreads) {
        sum += isa::ld_global(p.sink_term + h * p.delta_head + row);
      }
      isa::st_shared(isa::shared_base() + 8 * thread, sum);
      isa::cta_sync();
      if (thread == 0) {
        double total = 0;
        for (u32 n = 0; n < kThreads; ++n) {
          total += isa::ld_shared<double>(isa::shared_base() + 8 * n);
        }
        isa::st_global(p.g.dsinks + h, static_cast<f32>(total));
      }
      isa::cta_sync();
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_GENERIC_DBIAS_H_
