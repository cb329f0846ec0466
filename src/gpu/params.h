// From a resolved problem and the arguments of a run to the parameters that kernels share
// (kernels/params.h).
#ifndef STROBE_SRC_GPU_PARAMS_H_
#define STROBE_SRC_GPU_PARAMS_H_

#include <strobe/strobe.h>

#include <cstdint>
#include <string>

#include "api/status.h"
#include "kernels/params.h"

namespace strobe::gpu {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of q and k that a sequence has at most: what the problem says, or all rows where a varlen
// problem leaves it open.
std::int64_t max_seqlen_q(const strobe_problem& problem);
std::int64_t max_seqlen_k(const strobe_problem& problem);

// Kernels count rows within a sequence, sequences, heads and CTAs in 32 bits. Refuses what does not
// fit; offsets in memory are 64-bit and no matter.
api::Status check_sizes(const strobe_problem& problem);

// Why a problem needs rows with Features::kFull; empty where kPlain ones do.
std::string reasons_for_full(const strobe_problem& problem);

// Why rows cannot be moved 16 bytes at a time; empty where they can: pointers, strides and lengths
// of all of q k v o (and the gradients in backward) must allow it.
std::string reason_for_scalar_loads(const strobe_problem& problem);

kernels::Strides strides(const strobe_strides& s);
inline kernels::TensorArg tensor_arg(const void* data, const strobe_strides& s) {
  return {const_cast<void*>(data), strides(s)};
}

// All of Attention, with `pack` heads of a group in a tile.
kernels::Attention attention(const strobe_problem& problem, const strobe_run_args& args, int pack,
                             bool vector_loads);

// All tensors of a backward run; dbias contiguous, with strides 0 where the bias broadcasts.
kernels::Gradients gradients(const strobe_problem& problem, const strobe_run_args& args,
                             const kernels::Attention& attention);

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_PARAMS_H_
