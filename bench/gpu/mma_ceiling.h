// The ceiling of FlashAttention-2's inner loop on mma.sync: its products, its operand fetches and
// its softmax, without loads from device memory, masks, barriers or epilogue. What fa2_fwd reaches
// of it is stated in docs/design/fa2.md.
#ifndef STROBE_BENCH_GPU_MMA_CEILING_H_
#define STROBE_BENCH_GPU_MMA_CEILING_H_

#include "tile/element.h"
#include "tile/fragment.h"
#include "tile/online_softmax.h"

namespace strobe::STROBE_TARGET {

enum class Ceiling {
  kProducts,  // operands stay in registers
  kFetch,     // operands come from shared memory by ldmatrix
  kSoftmax,   // and P is made between the two products
};

struct CeilingConfig {
  Dtype dtype;
  int head_dim, warp_rows, block_n, warps, min_ctas;
  Ceiling what;
};

struct CeilingParams {
  f32* sink;
  int steps;
};

template <CeilingConfig C>
struct MmaCeiling {
  using Params = CeilingParams;
  using T = Element<C.dtype>;
  using QTile = SmemTile<T, C.warp_rows * C.warps, C.head_dim>;
  using KTile = SmemTile<T, C.block_n, C.head_dim>;
  static constexpr int kThreads = 32 * C.warps, kMinCtas = C.min_ctas;
  static constexpr int kSharedBytes = QTile::kBytes + 2 * KTile::kBytes;

  STROBE_DEVICE static void run(const Params& p) {
    const u32 lane = isa::lane_id();
    const int row = static_cast<int>(isa::warp_id()) * C.warp_rows;
    const QTile q = {isa::shared_base()};
    const KTile k_tile = {q.base + QTile::kBytes}, v_tile = {k_tile.base + KTile::kBytes};
    for (u32 x = isa::thread_id(); x < kSharedBytes / 4; x += kThreads) {
      // Small pseudo-random numbers: zeros would draw less power.
      const u32 r = (x * 2654435761u) >> 16;
      isa::st_shared(q.base + 4 * x, 0x3C003C00u | (r & 0x80FF80FFu) | ((r << 16) & 0x80FF0000u));
    }
    isa::cta_sync();
    Accumulator<C.warp_rows, C.head_dim> o;
    o.clear();
    OnlineSoftmax<Accumulator<C.warp_rows, C.block_n>::kRowsPerLane> softmax(0.05f);
    u32x4 some = load_a(q, row, 0, lane);
    const auto fixed = [&](int n) -> u32x4 { return {some[0] ^ n, some[1], some[2] ^ n, some[3]}; };
    Accumulator<C.warp_rows, C.block_n> s;
    OperandA<T, C.warp_rows, C.block_n> prob;
    s.clear();
    prob.round(s);
    constexpr bool kFetch = C.what != Ceiling::kProducts, kSoft = C.what == Ceiling::kSoftmax;
    STROBE_NO_UNROLL
    for (int step = 0; step < p.steps; ++step) {
      some[1] ^= step;  // or S would be computed once for all
      mma<T, C.head_dim, Accumulate::kNo>(
          s, [&](int m, int k) { return kFetch ? load_a(q, row + 16 * m, k, lane) : fixed(m); },
          [&](int n, int k) { return kFetch ? load_b(k_tile, 16 * n, k, lane) : fixed(n); },
          [](int) {});
      const bool moved = kSoft && softmax.update_max(s);
      mma<T, C.block_n, Accumulate::kYes>(
          o, [&](int m, int k) { return prob.x[m][k]; },
          [&](int n, int k) {
            return kFetch ? load_b_transposed(v_tile, 16 * n, k, lane) : fixed(n);
          },
          [&](int i) {
            if (kSoft) softmax.template exponentiate<C.block_n / 16 * C.head_dim / 16>(s, i);
          });
      if (moved) softmax.rescale(o);
      prob.round(s);
    }
    f32 sum = softmax.l[0];
    o.for_each([&](f32 x, int, int) { sum += x; });
    if (sum == 12345.0f) isa::st_global(p.sink + isa::thread_id(), sum);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_BENCH_GPU_MMA_CEILING_H_
