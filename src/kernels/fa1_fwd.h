// FlashAttention-1, forward (its algorithms 1 and 2), on mma.sync.
//
// One CTA takes a whole head; the grid is batch x heads and nothing else. K and V blocks are
// outside, Q blocks inside, so the running O, l and m live in device memory (float32 workspace) and
// O is kept normalised. Warps split the keys of a block (split-K): each has S and P of its own keys
// for all rows, and row maxima, row sums and P V are put together through shared memory.
//
//     O = 0, l = 0, m = -inf            in device memory
//     for each block j of keys:
//       load K_j, V_j                   cp.async; once
//       for each block i of queries that sees one of them:
//         load Q_i                      cp.async, one step ahead
//         S = tau Q_i K_j^T             mma.sync; mask
//         m~ = rowmax S                 in a warp, then over the warps     barrier A
//         P = exp(S - m~), l~ = rowsum P   likewise; dropout               barrier B
//         m_new = max(m_i, m~)          one thread per row; l_i, m_i read and written
//         l_new = e^(m_i - m_new) l_i + e^(m~ - m_new) l~
//         O_i = (l_i e^(m_i - m_new) O_i + e^(m~ - m_new) P V_j) / l_new   O_i read and written;
//                                       P V_j summed over the warps        barriers C, D
//     O rounded to the dtype, LSE = m + log l
#ifndef STROBE_SRC_KERNELS_FA1_FWD_H_
#define STROBE_SRC_KERNELS_FA1_FWD_H_

#include "kernels/fa1_config.h"
#include "kernels/fa1_split.h"
#include "tile/element.h"
#include "tile/modifiers.h"
#include "tile/online_softmax.h"

namespace strobe::STROBE_TARGET {

using kernels::fa1_fwd_config;
using kernels::Fa1Config;
using kernels::Fa1FwdParams;

template <Fa1Config C>
struct Fa1Fwd {
  using Params = Fa1FwdParams;
  using T = Element<C.dtype>;
  using QTile = SmemTile<T, C.block_m, C.head_dim>;
  using KTile = SmemTile<T, C.block_n, C.head_dim>;
  using WarpKeys = SmemTile<T, C.warp_keys(), C.head_dim>;  // one warp's rows of a KTile
  using WarpS = Accumulator<C.block_m, C.warp_keys()>;
  using RowValues = PerWarpRows<C.warps, C.block_m>;
  using Partials = PartialSlabs<C.warps, C.head_dim>;
  static constexpr int kThreads = C.warps * 32;
  static constexpr int kMinCtas = 1;
  static constexpr int kBlockM = C.block_m, kBlockN = C.block_n;
  static constexpr int kRows = WarpS::kRowsPerLane;

  // Shared memory: K, V, two blocks of Q, partial O, row maxima and sums, factors of O and P V.
  static constexpr int kV = KTile::kBytes, kQ = kV + KTile::kBytes;
  static constexpr int kPartials = kQ + 2 * QTile::kBytes;
  static constexpr int kMaxima = kPartials + Partials::kBytes;
  static constexpr int kSums = kMaxima + RowValues::kBytes;
  static constexpr int kFactors = kSums + RowValues::kBytes;
  static constexpr int kSharedBytes = kFactors + C.block_m * 8;
  STROBE_DEVICE static KTile k_tile() { return {isa::shared_base()}; }
  STROBE_DEVICE static KTile v_tile() { return {isa::shared_base() + kV}; }
  STROBE_DEVICE static QTile q_tile(int s) { return {isa::shared_base() + kQ + s * QTile::kBytes}; }
  STROBE_DEVICE static Partials partials() { return {isa::shared_base() + kPartials}; }
  STROBE_DEVICE static RowValues maxima() { return {isa::shared_base() + kMaxima}; }
  STROBE_DEVICE static RowValues sums() { return {isa::shared_base() + kSums}; }
  STROBE_DEVICE static u32 factors(int row) { return isa::shared_base() + kFactors + row * 8; }

  STROBE_DEVICE static void run(const Params& p) { Fa1Fwd(p).attend(); }

 private:
  const Params& p;
  QueryTile tile;  // of block i
  const u32 lane, warp;
  const int blocks_q, blocks_k;
  const RunningRows<kThreads> o;
  f32* const l;
  f32* const m;

  STROBE_DEVICE explicit Fa1Fwd(const Params& params)
      : p(params),
        tile(p.a, 0, isa::cta_id(), C.block_m),
        lane(isa::lane_id()),
        warp(isa::warp_id()),
        blocks_q(ceil_div(tile.seq.len_q, C.block_m)),
        blocks_k(ceil_div(tile.seq.len_k, C.block_n)),
        o{p.run_o + tile.offset(p.run.stride, 0, tile.head) * p.run.dim, p.run.dim},
        l(p.run_l + tile.offset(p.run.stride, 0, tile.head)),
        m(p.run_m + tile.offset(p.run.stride, 0, tile.head)) {}

  STROBE_DEVICE void attend() {
    initialise();
    for (int j = 0; j < blocks_k; ++j) {
      int i = next_block(0, j);
      if (i == blocks_q) continue;
      isa::cta_sync();  // K_(j-1), V_(j-1) and Q are read by nobody
      load_kv(j);
      load_q(i, 0);
      for (int stage = 0; i < blocks_q; stage = 1 - stage) {
        const int following = next_block(i + 1, j);
        isa::cp_async_wait<0>();
        isa::cta_sync();  // Q_i (and K_j, V_j) are there; the other Q is read by nobody
        if (following < blocks_q) load_q(following, 1 - stage);
        tile.first_row = static_cast<i64>(i) * C.block_m;
        step(j * C.block_n, stage);
        i = following;
      }
    }
    isa::cta_sync();  // the last O, l and m are written
    finish();
  }

  STROBE_DEVICE void step(int key0, int stage) {
    WarpS s;
    s.clear();
    const WarpKeys k_w = {k_tile().base + warp * WarpKeys::kBytes};
    const WarpKeys v_w = {v_tile().base + warp * WarpKeys::kBytes};
    multiply_add<T, C.head_dim>(
        s, [&](int mt, int k) { return load_a(q_tile(stage), 16 * mt, k, lane); },
        [&](int n, int k) { return load_b(k_w, 16 * n, k, lane); });
    const int warp_key0 = key0 + static_cast<int>(warp) * C.warp_keys();
    scale_and_mask(s, warp_key0);
    put_maxima(s);
    isa::cta_sync();  // A: every warp's row maxima
    exponentials(s);
    drop(s, warp_key0);
    isa::cta_sync();  // B: every warp's row sums
    if (isa::thread_id() < C.block_m) update_row(static_cast<int>(isa::thread_id()));
    STROBE_UNROLL
    for (int slab = 0; slab < C.block_m / 16; ++slab) {
      Accumulator<16, C.head_dim> pv;
      pv.clear();
      multiply_add<T, C.warp_keys()>(
          pv, [&](int, int k) { return rounded_a<T>(s, slab, k); },
          [&](int n, int k) { return load_b_transposed(v_w, 16 * n, k, lane); });
      partials().put(warp, pv, 0, lane);
      isa::cta_sync();  // C: every warp's part of P V, the rows' factors
      update_o(16 * slab);
      if (slab + 1 < C.block_m / 16) isa::cta_sync();  // D: the parts are read
    }
  }

  // The first block from i on whose queries see a key of block j.
  STROBE_DEVICE int next_block(int i, int j) const {
    for (; i < blocks_q; ++i) {
      const int first = i * C.block_m;
      const int last = core::min(first + C.block_m, tile.seq.len_q) - 1;
      const core::Keys32 any = core::tile_keys(tile.seq, first, last).any;
      if (any.begin < (j + 1) * C.block_n && any.end > j * C.block_n) break;
    }
    return i;
  }

  STROBE_DEVICE void load_q(int i, int stage) {
    const T* q = static_cast<const T*>(p.q.data);
    load_rows<kThreads>(
        q_tile(stage),
        [&](int r) -> const T* {
          const int query = i * C.block_m + r;
          return query < tile.seq.len_q ? q + tile.offset(p.q.stride, query, tile.head) : nullptr;
        },
        p.a.head_dim, p.a.vector_loads);
    isa::cp_async_commit();
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
    load_rows<kThreads>(k_tile(), row(p.k), p.a.head_dim, p.a.vector_loads);
    load_rows<kThreads>(v_tile(), row(p.v), p.a.head_dim_v, p.a.vector_loads);
  }

  STROBE_DEVICE void initialise() {
    o.zero(tile.seq.len_q);
    for (int i = static_cast<int>(isa::thread_id()); i < tile.seq.len_q; i += kThreads) {
      isa::st_global(l + i, 0.0f);
      isa::st_global(m + i, -core::infinity());
    }
  }

  STROBE_DEVICE void scale_and_mask(WarpS& s, int key0) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const core::Keys32 keys = tile.seq.keys(tile.query(WarpS::row(i, lane)));
      STROBE_UNROLL
      for (int n = 0; n < 2 * WarpS::kNTiles; ++n) {
        f32& x = s.x[i / 2][n / 2][2 * (i % 2) + n % 2];
        const int key = key0 + WarpS::col(n, lane);
        x = key >= keys.begin && key < keys.end ? x * p.a.scale : -core::infinity();
      }
    }
    isa::count(core::Op::kScale, kRows * C.warp_keys() / 4);
  }

  STROBE_DEVICE void put_maxima(WarpS& s) {
    f32 top[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) top[i] = -core::infinity();
    s.for_each([&](f32 x, int i, int) { top[i] = isa::max(top[i], x); });
    isa::count(core::Op::kMax, kRows * C.warp_keys() / 4);
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 1));
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 2));
      if (lane % 4 == 0) maxima().put(warp, WarpS::row(i, lane), top[i]);
    }
  }

  STROBE_DEVICE static f32 block_max(int row) {
    isa::count(core::Op::kMax, C.warps - 1);
    return maxima().reduce(row, [](f32 a, f32 b) { return isa::max(a, b); });
  }
  // What exponentials are relative to: m, or 0 where nothing but -inf was seen.
  STROBE_DEVICE static f32 reference(f32 m) { return m == -core::infinity() ? 0.0f : m; }

  // S becomes P~ = exp(S - m~); the row sums of this warp's keys.
  STROBE_DEVICE void exponentials(WarpS& s) {
    f32 top[kRows], sum[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      top[i] = reference(block_max(WarpS::row(i, lane))) * kLog2e;
      sum[i] = 0;
    }
    s.for_each([&](f32& x, int i, int) {
      x = isa::ex2(isa::fma(x, kLog2e, -top[i]));
      sum[i] += x;
    });
    isa::count(core::Op::kScale, kRows * C.warp_keys() / 4);
    isa::count(core::Op::kSum, kRows * C.warp_keys() / 4);
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      sum[i] += isa::shfl_xor(sum[i], 1);
      sum[i] += isa::shfl_xor(sum[i], 2);
      if (lane % 4 == 0) sums().put(warp, WarpS::row(i, lane), sum[i]);
    }
  }

  STROBE_DEVICE void drop(WarpS& s, int key0) {
    const Modifiers& mod = p.a.mod;
    if (mod.keep_threshold == 0) return;
    const core::PhiloxBlock stream =
        RowDropout(mod, static_cast<u64>(tile.b) * p.a.heads + tile.head, 0).stream;
    const auto factor = [&](u32 draw) {
      return draw >= mod.keep_threshold ? mod.keep_scale : 0.0f;
    };
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const u32 query = static_cast<u32>(tile.query(WarpS::row(i, lane)));
      STROBE_UNROLL
      for (int n = 0; n < WarpS::kNTiles; ++n) {  // eight keys: one block of bits
        const u32 bits =
            word_of(core::dropout_bits(stream, query, static_cast<u32>(key0 / 8 + n)), lane % 4);
        s.x[i / 2][n][2 * (i % 2)] *= factor(bits & 0xFFFFu);
        s.x[i / 2][n][2 * (i % 2) + 1] *= factor(bits >> 16);
      }
    }
    isa::count(core::Op::kOther, kRows * C.warp_keys() / 4);
  }

  // One row's m and l, and by how much its O and its P V count from now on.
  STROBE_DEVICE void update_row(int row) {
    const int query = tile.query(row);
    if (query >= tile.seq.len_q) return;
    const f32 m_block = block_max(row);
    const f32 l_block = sums().reduce(row, [](f32 a, f32 b) { return a + b; });
    const f32 m_old = isa::ld_global(m + query), l_old = isa::ld_global(l + query);
    const f32 m_new = isa::max(m_old, m_block);
    const f32 old = isa::ex2((m_old - reference(m_new)) * kLog2e) * l_old;
    const f32 block = isa::ex2((m_block - reference(m_new)) * kLog2e);
    const f32 l_new = old + block * l_block;
    const f32 inverse = l_new == 0.0f ? 0.0f : isa::rcp(l_new);
    isa::count(core::Op::kSum, C.warps);
    isa::count(core::Op::kMax);
    isa::count(core::Op::kRescale, 4);  // of l and of the two factors
    isa::st_global(m + query, m_new);
    isa::st_global(l + query, l_new);
    isa::st_shared(factors(row), f32x2{old * inverse, block * inverse});
  }

  STROBE_DEVICE void update_o(int slab_row) {
    o.template update_slab<C.head_dim>(
        tile.query(slab_row), tile.seq.len_q, [&](int row, int col, f32x4 x) {
          const f32x4 pv = partials().sum(row, col);
          const f32x2 f = isa::ld_shared<f32x2>(factors(slab_row + row));
          STROBE_UNROLL
          for (int e = 0; e < 4; ++e) x[e] = isa::fma(x[e], f[0], pv[e] * f[1]);
          isa::count(core::Op::kRescale, 8);
          return x;
        });
  }

  STROBE_DEVICE void finish() {
    T* out = static_cast<T*>(p.o.data);
    o.template convert<T>(
        tile.seq.len_q, tile.seq.rows_q,
        [&](int i) { return out + tile.offset(p.o.stride, i, tile.head); }, p.a.head_dim_v,
        p.a.vector_loads, 1.0f);
    if (!p.lse) return;
    for (int i = static_cast<int>(isa::thread_id()); i < tile.seq.rows_q; i += kThreads) {
      f32 lse = -core::infinity();
      if (i < tile.seq.len_q) {
        const f32 sum = isa::ld_global(l + i), top = isa::ld_global(m + i);
        if (sum != 0.0f) lse = isa::fma(isa::lg2(sum), kLn2, top);
      }
      isa::st_global(p.lse + tile.offset(p.lse_stride, i, tile.head), lse);
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_FA1_FWD_H_
