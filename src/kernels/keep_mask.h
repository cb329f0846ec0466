// The dropout mask of chosen query rows: 1 where P is kept. One warp per row, one lane per key.
#ifndef STROBE_SRC_KERNELS_KEEP_MASK_H_
#define STROBE_SRC_KERNELS_KEEP_MASK_H_

#include "kernels/probs.h"

namespace strobe::STROBE_TARGET {

// items: rows of the output.
struct KeepMask {
  using Params = RowParams;
  static constexpr int kThreads = kRowThreads, kMinCtas = 1, kSharedBytes = 0;

  STROBE_DEVICE static void run(const Params& p) {
    for_each_item(p.items, [&](u64 n) {
      const ChosenRow row(p, n);
      const kernels::Modifiers& m = p.a.mod;
      const core::PhiloxBlock stream =
          core::dropout_stream(m.state ? isa::ld_global(m.state) : m.seed,
                               m.state ? isa::ld_global(m.state + 1) : m.offset,
                               static_cast<u64>(row.b) * p.a.heads + row.h);
      u8* out = p.keep_mask + static_cast<i64>(n) * p.out_keys;
      for (int j = static_cast<int>(isa::lane_id()); j < p.out_keys; j += 32) {
        const bool inside = row.holds && j < row.seq.len_k;
        const core::PhiloxBlock bits =
            core::dropout_bits(stream, static_cast<u32>(row.index), static_cast<u32>(j / 8));
        const bool kept = core::dropout_draw(bits, static_cast<u32>(j % 8)) >= m.keep_threshold;
        isa::st_global(out + j, static_cast<u8>(inside && kept));
      }
    });
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_KEEP_MASK_H_
