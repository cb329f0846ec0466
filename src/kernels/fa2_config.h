// Compile-time choices of the FlashAttention-2 kernels.
#ifndef STROBE_SRC_KERNELS_FA2_CONFIG_H_
#define STROBE_SRC_KERNELS_FA2_CONFIG_H_

#include "core/types.h"

namespace strobe::kernels {

// kPlain: scale, band, sinks, GQA, lengths. kFull: whatever Modifiers hold as well.
enum class Features { kPlain, kFull };

struct Fa2FwdConfig {
  core::Dtype dtype;
  int head_dim;  // of the row: head dims up to it are padded
  Features features;
  int block_m;   // query rows of a CTA
  int block_n;   // keys of a step
  int warps;     // each takes block_m / warps rows (split-Q)
  int stages;    // K and V blocks in flight
  int min_ctas;  // per SM

  STROBE_HOST_DEVICE constexpr int warp_rows() const { return block_m / warps; }
};

// Chosen by measurement: docs/design/fa2.md.
STROBE_HOST_DEVICE constexpr Fa2FwdConfig fa2_fwd_config(core::Dtype dtype, int head_dim,
                                                         Features features) {
  Fa2FwdConfig c = {dtype, head_dim, features, 128, 64, 4, 2, 2};
  if (head_dim > 128) {
    c.warps = 8;
    c.stages = head_dim > 192 ? 1 : 2;
    c.min_ctas = 1;
  }
  return c;
}

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_FA2_CONFIG_H_
