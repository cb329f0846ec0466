// FlashAttention-2's backward, before and after its main kernel: row by row work.
//
//   Fa2BwdDelta   delta = rowsum(O dO) - dLSE and LSE in units of log2, for whole padded tiles;
//   zeros
//                 for what the main kernel adds to
//   Fa2BwdDq      dQ = scale * accumulator, from the order of fragments to rows
//   Fa2BwdSinks   dSink = -sum over rows of exp(sink - LSE) delta
#ifndef STROBE_SRC_KERNELS_FA2_BWD_ROWS_H_
#define STROBE_SRC_KERNELS_FA2_BWD_ROWS_H_

#include "kernels/fa2_bwd.h"

namespace strobe::STROBE_TARGET {

// One CTA takes one query block of one head: its rows as the padded workspace has them.
struct PaddedTile {
  core::Sequence seq;
  int b, h, i0;
  i64 row;  // of the workspace

  STROBE_DEVICE PaddedTile(const Fa2BwdParams& p, u32 cta) {
    const u32 heads = static_cast<u32>(p.g.a.heads);
    const u32 block = cta / (heads * static_cast<u32>(p.g.a.batch)),
              rest = cta % (heads * static_cast<u32>(p.g.a.batch));
    b = static_cast<int>(rest / heads);
    h = static_cast<int>(rest % heads);
    i0 = static_cast<int>(block) * p.padded.tile;
    seq = sequence(p.g.a, b);
    row = h * p.padded.rows + p.padded.first(b, seq.q_begin) + i0;
  }
  STROBE_DEVICE i64 offset(const kernels::Strides& s, int i) const {
    return b * s.batch + (seq.q_begin + i) * s.seq + h * s.head;
  }
};

template <Dtype kDtype>
struct Fa2BwdDelta {
  using Params = Fa2BwdParams;
  using T = Element<kDtype>;
  static constexpr int kThreads = 128, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    const PaddedTile tile(p, isa::cta_id());
    if (tile.i0 >= tile.seq.rows_q) return;
    clear(p, tile);
    // A row is the work of as many lanes as it has 16-byte chunks, a power of two of them.
    const int chunks = ceil_div(p.g.a.head_dim_v, 8);
    const int group = chunks > 16 ? 32 : chunks > 8 ? 16 : 8;
    const int per_pass = kThreads / group;
    // Two rows at a time, so that their loads are on their way together.
    for (int r = static_cast<int>(isa::thread_id()) / group; r < p.padded.tile; r += 2 * per_pass) {
      f32 delta[2];
      STROBE_UNROLL
      for (int x = 0; x < 2; ++x) delta[x] = partial(p, tile, tile.i0 + r + x * per_pass, group);
      STROBE_UNROLL
      for (int x = 0; x < 2; ++x) finish(p, tile, r + x * per_pass, group, delta[x]);
    }
  }

 private:
  // dQ's accumulator, and whose turn it is, of this tile.
  STROBE_DEVICE static void clear(const Params& p, const PaddedTile& tile) {
    f32x4* dq = reinterpret_cast<f32x4*>(p.dq + tile.row * p.row_dim);
    const int pieces = p.padded.tile * p.row_dim / 4;
    for (int x = static_cast<int>(isa::thread_id()); x < pieces; x += kThreads) {
      isa::st_global(dq + x, f32x4{0, 0, 0, 0});
    }
    if (p.turn && isa::thread_id() == 0) isa::st_global(p.turn + tile.row / p.padded.tile, 0u);
  }

  // The row's delta, from the parts of its lanes, and its LSE.
  STROBE_DEVICE static void finish(const Params& p, const PaddedTile& tile, int r, int group,
                                   f32 delta) {
    const int i = tile.i0 + r;
    for (int lanes = group / 2; lanes > 0; lanes /= 2) delta += isa::shfl_xor(delta, lanes);
    if (static_cast<int>(isa::lane_id()) % group != 0) return;
    f32 lse = -core::infinity();
    if (i < tile.seq.len_q) {
      lse = isa::ld_global(p.g.lse + tile.offset(p.g.lse_stride, i));
      if (p.g.dlse) delta -= isa::ld_global(p.g.dlse + tile.offset(p.g.dlse_stride, i));
    }
    const bool nothing = lse == -core::infinity();
    isa::st_global(p.lse2 + tile.row + r, nothing ? core::infinity() : lse * kLog2e);
    isa::st_global(p.delta + tile.row + r, nothing ? 0.0f : delta);
  }

  // This lane's part of O dO. Rows past the sequence read its last instead; finish() ignores them.
  STROBE_DEVICE static f32 partial(const Params& p, const PaddedTile& tile, int i, int group) {
    const int lane = static_cast<int>(isa::lane_id()) % group;
    const int row = core::max(0, core::min(i, tile.seq.len_q - 1));
    const T* o = static_cast<const T*>(p.g.o.data) + tile.offset(p.g.o.stride, row);
    const T* dout = static_cast<const T*>(p.g.dout.data) + tile.offset(p.g.dout.stride, row);
    f32 sum = 0;
    if (p.g.a.vector_loads) {
      for (int x = lane * 8; x < p.g.a.head_dim_v; x += group * 8) {
        const auto a = isa::ld_global_nc(reinterpret_cast<const Vec<T, 8>*>(o + x));
        const auto c = isa::ld_global_nc(reinterpret_cast<const Vec<T, 8>*>(dout + x));
        STROBE_UNROLL
        for (int e = 0; e < 8; ++e) sum += isa::to_float(a[e]) * isa::to_float(c[e]);
      }
    } else {
      for (int x = lane; x < p.g.a.head_dim_v; x += group) {
        sum += isa::to_float(isa::ld_global(o + x)) * isa::to_float(isa::ld_global(dout + x));
      }
    }
    return sum;
  }
};

template <Fa2BwdConfig C>
struct Fa2BwdDq {
  using Params = Fa2BwdParams;
  using T = Element<C.dtype>;
  using Main = Fa2Bwd<C>;
  using WarpDq = typename Main::WarpDq;
  using Tile = SmemTile<T, C.block_m, C.head_dim>;
  static constexpr int kThreads = Main::kThreads, kMinCtas = 1, kSharedBytes = Tile::kBytes;

  STROBE_DEVICE static void run(const Params& p) {
    const PaddedTile tile(p, isa::cta_id());
    if (tile.i0 >= tile.seq.rows_q) return;
    const Tile buffer = {isa::shared_base()};
    const u32 lane = isa::lane_id();
    const int warp = static_cast<int>(isa::warp_id());
    const int row0 = warp / C.dq.cols * (C.block_m / C.dq.rows);
    const int chunk0 = warp % C.dq.cols * (C.head_dim / C.dq.cols) / 8;
    const f32* from =
        p.dq + tile.row * C.head_dim + (warp * WarpDq::kMTiles * WarpDq::kNTiles * 32 + lane) * 4;
    // All loads first: this kernel waits for memory and nothing else.
    f32x4 x[WarpDq::kMTiles][WarpDq::kNTiles];
    STROBE_UNROLL
    for (int m = 0; m < WarpDq::kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < WarpDq::kNTiles; ++n) {
        const f32* at = from + (m * WarpDq::kNTiles + n) * 128;
        x[m][n] = isa::ld_global_nc(reinterpret_cast<const f32x4*>(at));
      }
    }
    const f32 scale = p.g.a.scale;
    STROBE_UNROLL
    for (int m = 0; m < WarpDq::kMTiles; ++m) {
      const int row = row0 + 16 * m + static_cast<int>(lane / 4);
      STROBE_UNROLL
      for (int n = 0; n < WarpDq::kNTiles; ++n) {
        const f32x4& v = x[m][n];
        const u32 column = 4 * (lane % 4);
        isa::st_shared(buffer.at(row, chunk0 + n) + column,
                       isa::pack<T>(v[0] * scale, v[1] * scale));
        isa::st_shared(buffer.at(row + 8, chunk0 + n) + column,
                       isa::pack<T>(v[2] * scale, v[3] * scale));
      }
    }
    isa::cta_sync();
    T* dq = static_cast<T*>(p.g.dq.data);
    STROBE_UNROLL
    for (u32 c = isa::thread_id(); c < C.block_m * Tile::kChunks; c += kThreads) {
      const int r = static_cast<int>(c / Tile::kChunks), i = tile.i0 + r;
      if (i >= tile.seq.rows_q) break;
      const u32 chunk = c % Tile::kChunks;
      store_chunk(dq + tile.offset(p.g.dq.stride, i), chunk,
                  isa::ld_shared<Vec<T, 8>>(buffer.at(r, chunk)), p.g.a.head_dim,
                  p.g.a.vector_loads != 0);
    }
  }
};

// One CTA per query head, in a fixed order of rows.
struct Fa2BwdSinks {
  using Params = Fa2BwdParams;
  static constexpr int kThreads = 256, kMinCtas = 1, kSharedBytes = 4 * kThreads;

  STROBE_DEVICE static void run(const Params& p) {
    const int h = static_cast<int>(isa::cta_id());
    const u32 thread = isa::thread_id();
    const f32 sink2 = isa::ld_global(p.g.a.sinks + h) * kLog2e;
    f32 sum = 0;
    for (int b = 0; b < p.g.a.batch; ++b) {
      const core::Sequence seq = sequence(p.g.a, b);
      const i64 first = h * p.padded.rows + p.padded.first(b, seq.q_begin);
      for (int i = static_cast<int>(thread); i < seq.len_q; i += kThreads) {
        const f32 lse2 = isa::ld_global(p.lse2 + first + i);
        sum -= isa::ex2(sink2 - lse2) * isa::ld_global(p.delta + first + i);
      }
    }
    const u32 base = isa::shared_base();
    isa::st_shared(base + 4 * thread, sum);
    for (u32 half = kThreads / 2; half > 0; half /= 2) {
      isa::cta_sync();
      if (thread < half) {
        sum += isa::ld_shared<f32>(base + 4 * (thread + half));
        isa::st_shared(base + 4 * thread, sum);
      }
    }
    if (thread == 0) isa::st_global(p.g.dsinks + h, sum);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA2_BWD_ROWS_H_
