// Compile-time choices of the FlashAttention-2 kernels.
#ifndef STROBE_SRC_KERNELS_FA2_CONFIG_H_
#define STROBE_SRC_KERNELS_FA2_CONFIG_H_

#include "core/types.h"

namespace strobe::kernels {

// kPlain: scale > 0, band, sinks, GQA, lengths, and rows of whole 16-byte chunks. kFull: whatever
// Modifiers hold, any scale and any alignment.
enum class Features { kPlain, kFull };

struct Fa2FwdConfig {
  core::Dtype dtype;
  int head_dim;  // of the row: head dims up to it are padded
  Features features;
  int block_m;   // query rows of a CTA
  int block_n;   // keys of a step
  int warps;     // each takes block_m / warps rows (split-Q)
  int stages;    // blocks of K and V in shared memory
  int min_ctas;  // per SM
  int fetch_at;  // step of Q K^T after which the next K and V are asked for

  STROBE_HOST_DEVICE constexpr int warp_rows() const { return block_m / warps; }
};

// Chosen by measurement: docs/design/fa2.md.
STROBE_HOST_DEVICE constexpr Fa2FwdConfig fa2_fwd_config(core::Dtype dtype, int head_dim,
                                                         Features features) {
  if (head_dim > 128) return {dtype, head_dim, features, 128, 64, 8, 2, 1, 8};
  return {dtype, head_dim, features, 128, head_dim > 64 ? 32 : 64, 4, 2, 2, 1};
}

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_FA2_CONFIG_H_
