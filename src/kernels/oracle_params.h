// Parameters of the kernels that work row by row: the float64 oracle, probabilities, keep mask,
// merge.
#ifndef STROBE_SRC_KERNELS_ORACLE_PARAMS_H_
#define STROBE_SRC_KERNELS_ORACLE_PARAMS_H_

#include "kernels/params.h"

namespace strobe::kernels {

// "real" tensors hold float64 where the problem's dtype is f64, else float32.
struct RowParams {
  Attention a;  // of which scale, sinks, alibi and the floats of mod are unused
  double scale, softcap, keep_scale;
  const void* sinks;  // real [heads]; null: none
  const void* alibi;  // real
  TensorArg q, k, v, o, dout, dq, dk, dv;
  void* lse;  // real; forward: null = not wanted
  Strides lse_stride;
  const void* dlse;  // real; null: zero
  Strides dlse_stride;
  void* dbias;  // real, contiguous [batch|1, heads|1, seqlen_q|1, seqlen_k]
  i64 bias_batch, bias_heads;
  int bias_rows, bias_keys;
  void* dsinks;     // real [heads]
  const i64* rows;  // [num_rows]
  i64 num_rows;
  int out_keys;   // seqlen_k of the next two
  void* probs;    // real [batch, heads, num_rows, seqlen_k]; varlen: [heads, num_rows, seqlen_k]
  u8* keep_mask;  // likewise
  u64 items;      // warps' worth of work of the kernel: see each
};

// Merging. The pointers of the parts lie in device memory, where MergeTable put them.
struct MergeParams {
  const void* const* partial_o;
  const void* const* partial_lse;
  int parts;
  int partial_is_real;  // partial_o is float32 (float64 for f64), else of the problem's dtype
  TensorArg o;
  void* lse;  // null: not wanted
  Strides lse_stride;
  i64 batch, rows;  // varlen: 1 and total_q
  int heads, head_dim_v;
};

// Pointers of the host, for device memory.
struct MergeTableParams {
  static constexpr int kCapacity = 448;
  const void** to;
  int count;
  const void* pointers[kCapacity];
};

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_ORACLE_PARAMS_H_
