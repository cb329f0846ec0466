// What the forward and backward plans of FlashAttention-2 share.
#ifndef STROBE_SRC_GPU_FAMILY_FA2_H_
#define STROBE_SRC_GPU_FAMILY_FA2_H_

#include <cstdint>
#include <string>

#include "gpu/family.h"
#include "kernels/outside_rows.h"

namespace strobe::gpu {

// The head dimension of the rows that serve a problem: 64, 96, 128, 192 or 256.
std::int64_t fa2_head_dim(const strobe_problem& problem);

// Why a full row is needed, with the loads in `scalar`; both empty for a plain row.
api::Status fa2_features(const strobe_problem& problem, const api::Options& options,
                         std::string* full, std::string* scalar);

// "fa2_fwd_bf16_d128_plain" and the like.
std::string fa2_row(const char* kernel, const strobe_problem& problem, const char* features);

api::Status plan_fa2_backward(const strobe_problem& problem, const api::Options& options,
                              const DeviceFacts& device, std::unique_ptr<KernelPlan>* planned);

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_FAMILY_FA2_H_
