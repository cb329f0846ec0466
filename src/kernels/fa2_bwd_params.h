// Parameters of FlashAttention-2's backward kernels, and where their workspace keeps what.
#ifndef STROBE_SRC_KERNELS_FA2_BWD_PARAMS_H_
#define STROBE_SRC_KERNELS_FA2_BWD_PARAMS_H_

#include "kernels/params.h"

namespace strobe::kernels {

// Query rows in the workspace are padded: each sequence starts at a multiple of `tile` rows and has
// whole tiles. Row r of head h is row h * rows + r of lse2, delta and dq.
struct PaddedRows {
  int tile;       // block_m of the row
  i64 per_batch;  // rows of a sequence; 0: varlen
  i64 rows;       // of one head

  // First row of sequence b, which begins at q_begin of the packed tensors. For varlen: floor(x) +
  // ceil(y) <= floor(x + y) + 1, so sequences do not overlap.
  STROBE_HOST_DEVICE constexpr i64 first(int b, i64 q_begin) const {
    return per_batch > 0 ? b * per_batch : (q_begin / tile + b) * tile;
  }
};

struct Fa2BwdParams {
  Gradients g;
  PaddedRows padded;
  f32* lse2;        // LSE in units of log2; +inf for rows that see nothing, so that P is 0
  f32* delta;       // rowsum(O dO) - dLSE
  f32* dq;          // accumulator: tiles of block_m x row_dim, in the order of fragments
  int row_dim;      // head dim of the row of kernels.def
  u32* turn;        // [heads][rows / tile]; null: dQ is summed in any order
  u32 n_blocks;     // key tiles per sequence and head
  u32 m_blocks;     // query tiles per sequence and head
  u32 heads_in_l2;  // see ForwardParams
};

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_FA2_BWD_PARAMS_H_
