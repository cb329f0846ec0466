// Block sizes and parameters of the FlashAttention-1 kernels.
#ifndef STROBE_SRC_KERNELS_FA1_CONFIG_H_
#define STROBE_SRC_KERNELS_FA1_CONFIG_H_

#include "kernels/params.h"

namespace strobe::kernels {

struct Fa1Config {
  core::Dtype dtype;
  int head_dim;  // of the row: head dims up to it are padded
  int block_m;   // B_r: query rows of an inner step
  int block_n;   // B_c: keys of an outer step
  int warps;     // each takes block_n / warps keys (split-K)

  STROBE_HOST_DEVICE constexpr int warp_keys() const { return block_n / warps; }
};

// The SRAM budgets from which the shipped rows take their blocks. Backward's is smaller because the
// dK and dV of a block's keys take registers.
constexpr int kFa1FwdSram = 128 * 1024, kFa1BwdSram = 64 * 1024;

// Algorithm 1, line 1, for M elements of 2 bytes: B_c = M / 4d, B_r = min(B_c, d). mma.sync tiles
// make B_c a multiple of 16 keys per warp and B_r one of 16 rows; the registers that S takes limit
// B_r to max_rows.
STROBE_HOST_DEVICE constexpr Fa1Config fa1_config(core::Dtype dtype, int head_dim, int sram_bytes,
                                                  int warp_keys, int max_rows) {
  const int wanted = sram_bytes / 2 / (4 * head_dim);
  const int warps = core::max(1, core::min(16, wanted / warp_keys));
  const int keys = core::max(16, core::min(warp_keys, wanted) / 16 * 16);
  const int rows = core::min(core::min(warps * keys, head_dim), max_rows);
  return {dtype, head_dim, core::max(16, rows / 16 * 16), warps * keys, warps};
}
STROBE_HOST_DEVICE constexpr Fa1Config fa1_fwd_config(core::Dtype dtype, int head_dim,
                                                      int sram_bytes = kFa1FwdSram) {
  return fa1_config(dtype, head_dim, sram_bytes, 32, 64);
}
// dK and dV of a warp's keys stay in registers, hence 16 keys and few rows.
STROBE_HOST_DEVICE constexpr Fa1Config fa1_bwd_config(core::Dtype dtype, int head_dim,
                                                      int sram_bytes = kFa1BwdSram) {
  return fa1_config(dtype, head_dim, sram_bytes, 16, head_dim > 64 ? 16 : 32);
}

// Rows of float32 workspace: row `offset(run, i, h)` of O or dQ has run_dim columns.
struct Fa1Workspace {
  Strides stride;  // in rows
  int dim;         // head_dim_v (forward) or head_dim (backward), rounded up to 8
};

struct Fa1FwdParams {
  Attention a;
  TensorArg q, k, v, o;
  f32* lse;  // null: not wanted
  Strides lse_stride;
  Fa1Workspace run;
  f32* run_o;  // the running O, normalised at every step
  f32* run_l;
  f32* run_m;
};

struct Fa1BwdParams {
  Gradients g;
  Fa1Workspace run;
  f32* run_dq;
};

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_FA1_CONFIG_H_
