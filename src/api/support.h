// All refusals that do not depend on a backend: what a problem and the arguments of a run must be.
// Each names the argument, its value, the limit and the remedy, and the first fault found is the
// one reported. strobe.h describes the fields themselves.
//
// Judgements beyond strobe.h:
// - Sizes go up to 2^48, and no tensor has more than 2^57 elements, broadcast ones counted, or
// spans
//   more than 2^60 bytes, so that no offset or count that a kernel forms wraps. |query_offset| goes
//   up to 2^48.
// - A number that float32 cannot hold is refused for scale and softcap unless dtype is STROBE_F64.
// - A field that the operation ignores is refused where its owner would expect an effect: masks,
//   bias, softcap, windows, sinks and dropout in STROBE_MERGE; partials, partial_dtype and num_rows
//   outside their operations. Shapes, scale and layout are not, nor the score fields in
//   STROBE_KEEP_MASK and dropout_p in STROBE_PROBS: these describe the forward pass asked about.
// - Likewise for pointers: an output that the operation does not write, a bias, mask, slopes or
//   sinks that the problem does not have, and lengths that its `lengths` does not take are refused;
//   other unused inputs are ignored.
// - STROBE_MERGE and STROBE_KEEP_MASK read no q: head_dim may then be 0 (merge: where head_dim_v
//   is given).
// - Outputs: elements_apart() of overlap.h must hold for the strides, may_share() must not for any
//   two tensors of which one is an output or the workspace.
#ifndef STROBE_SRC_API_SUPPORT_H_
#define STROBE_SRC_API_SUPPORT_H_

#include <strobe/strobe.h>

#include <cstddef>
#include <cstdint>

#include "api/status.h"

namespace strobe::api {

// Checks a caller's problem and fills in all that it left open, so that in *resolved
//   kv_heads, head_dim, head_dim_v, scale, partial_dtype and every stride have values; the batch
//     stride of varlen tensors is 0, and a stride of a dimension of size 1 is the contiguous one;
//   a single STROBE_AUTO stride continues from those of the dimensions inside it;
//   total_q and total_k are batch * seqlen_q and batch * seqlen_k unless varlen;
//   query_offset has a value if dense, and is STROBE_AUTO if left so in padded and varlen problems;
//   a window too wide to hide any key is -1;
//   sizes and strides of bias and mask have values, stride 0 where a dimension has size 1.
Status resolve(const strobe_problem* user, strobe_problem* resolved);

// Checks the arguments of one run of a resolved problem and copies them. O(batch + num_rows) on the
// CPU, where lengths and rows are read; elsewhere O(1), for they may not be readable from the host.
// On the CPU *checked holds dropout's seed and offset by value, with dropout_state NULL.
Status check_args(const strobe_problem& resolved, std::size_t workspace_bytes,
                  const strobe_run_args* user, void* stream, strobe_device_kind device,
                  strobe_run_args* checked);

// Parts of resolve(), in support_tensors.cpp: strides of q, k, v ... and the score tensors.
Status resolve_strides(strobe_problem& problem);
Status resolve_score_tensors(strobe_problem& problem);

// Part of check_args(), in support_lengths.cpp: cu_seqlens, seqlens and rows, read on the host.
Status check_lengths(const strobe_problem& resolved, const strobe_run_args& args);

// The limits above.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 48;
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
inline constexpr std::int64_t kMaxElements = kMaxBytes / 8;  // of a tensor, broadcast or not

}  // namespace strobe::api

#endif  // STROBE_SRC_API_SUPPORT_H_
