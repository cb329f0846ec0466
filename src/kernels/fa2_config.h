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

// Chosen by measurement: docs/design/fa2.md. Full rows take fewer rows a warp, for the registers
// that modifiers need.
STROBE_HOST_DEVICE constexpr Fa2FwdConfig fa2_fwd_config(core::Dtype dtype, int head_dim,
                                                         Features features) {
  if (features == Features::kFull) {
    return {dtype, head_dim, features, 64, head_dim > 128 ? 32 : 64, 4, 2, 2, 0};
  }
  if (head_dim > 128) return {dtype, head_dim, features, 64, 64, 4, 1, 2, 0};
  if (head_dim > 64) return {dtype, head_dim, features, 128, 32, 4, 2, 2, 1};
  return {dtype, head_dim, features, 128, 64, 4, 2, 2, 0};
}

// Plain rows of 64 queries, for short sequences: less of a tile is masked or empty.
STROBE_HOST_DEVICE constexpr Fa2FwdConfig fa2_fwd_short_config(core::Dtype dtype, int head_dim) {
  return {dtype, head_dim, Features::kPlain, 64, 64, 4, 2, 4, 0};
}

// A grid of warps over a product's rows and columns.
struct WarpGrid {
  int rows, cols;
};

struct Fa2BwdConfig {
  core::Dtype dtype;
  int head_dim;
  Features features;
  int block_m;   // query rows of a step
  int block_n;   // keys of a CTA
  int stages;    // blocks of Q and dO in shared memory: 1 or 2
  int min_ctas;  // per SM
  WarpGrid s;    // of S and dP: queries x keys
  WarpGrid dkv;  // of dK and dV: keys x head dim
  WarpGrid dq;   // of dQ: queries x head dim
  int fetch_at;  // step of S = Q K^T after which the next Q and dO are asked for

  STROBE_HOST_DEVICE constexpr int warps() const { return s.rows * s.cols; }
};

// Chosen by measurement: docs/design/fa2.md. Full rows take fewer keys, for the registers that
// modifiers need; block_m and dq are the same for both, because Fa2BwdDq serves both.
STROBE_HOST_DEVICE constexpr Fa2BwdConfig fa2_bwd_config(core::Dtype dtype, int head_dim,
                                                         Features features) {
  const bool full = features == Features::kFull;
  if (head_dim <= 64) {
    return {dtype, head_dim, features, 64, full ? 64 : 96, 2, 2, {2, 2}, {2, 2}, {2, 2}, 0};
  }
  if (head_dim <= 96) {
    return {dtype, head_dim, features, 64, full ? 64 : 128, 2, 1, {2, 4}, {4, 2}, {4, 2}, 0};
  }
  if (head_dim <= 128) {
    return {dtype, head_dim, features, 64, full ? 64 : 128, 2, 1, {2, 4}, {2, 4}, {2, 4}, 0};
  }
  return {dtype, head_dim, features, 64, 64, 2, 1, {2, 4}, {2, 4}, {2, 4}, 0};
}

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_FA2_CONFIG_H_
