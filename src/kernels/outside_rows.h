// Rows of a packed tensor that no sequence holds, those past cu_seqlens[batch]: zeros, and -inf in
// LSE. Nearly always there are none; then each CTA reads one number and ends.
#ifndef STROBE_SRC_KERNELS_OUTSIDE_ROWS_H_
#define STROBE_SRC_KERNELS_OUTSIDE_ROWS_H_

#include "isa/isa.h"
#include "kernels/params.h"

namespace strobe::kernels {

struct OutsideRowsParams {
  const int* end;  // cu_seqlens + batch: the first row outside
  i64 total;       // rows of the tensor
  int heads;
  int dim;        // elements of a row
  TensorArg out;  // null: only LSE
  f32* lse;       // null: none
  Strides lse_stride;
};

}  // namespace strobe::kernels

namespace strobe::STROBE_TARGET {

// kBytes: of an element.
template <int kBytes>
struct OutsideRows {
  using Params = kernels::OutsideRowsParams;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;
  static constexpr int kMinCtas = 1;

  // Each warp takes every so many (row, head).
  STROBE_DEVICE static void run(const Params& p) {
    const u32 warps = isa::grid_size() * (kThreads / kWarpThreads);
    const u32 warp = isa::cta_id() * (kThreads / kWarpThreads) + isa::thread_id() / kWarpThreads;
    const i64 end = isa::ld_global(p.end);
    const i64 first = end < 0 ? 0 : end;
    for (i64 x = first * p.heads + warp; x < p.total * p.heads; x += warps) {
      write_row(p, x / p.heads, static_cast<int>(x % p.heads));
    }
  }

 private:
  STROBE_DEVICE static void write_row(const Params& p, i64 row, int h) {
    using Word = Vec<u16, kBytes / 2>;
    const u32 lane = isa::lane_id();
    if (p.out.data) {
      Word* to = static_cast<Word*>(p.out.data) + row * p.out.stride.seq + h * p.out.stride.head;
      for (int c = static_cast<int>(lane); c < p.dim; c += kWarpThreads) {
        isa::st_global(to + c, Word{});
      }
    }
    if (p.lse && lane == 0) {
      isa::st_global(p.lse + row * p.lse_stride.seq + h * p.lse_stride.head, -core::infinity());
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_OUTSIDE_ROWS_H_
