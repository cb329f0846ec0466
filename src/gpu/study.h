// What the families for study have in common: standard attention and FlashAttention-1 compute what
// their papers describe and are chosen by name alone.
#ifndef STROBE_SRC_GPU_STUDY_H_
#define STROBE_SRC_GPU_STUDY_H_

#include <cstdint>

#include "gpu/family.h"

namespace strobe::gpu {

// bf16 and f16, forward and backward, head dimensions up to 128, band, scale, dropout, any GQA
// ratio, padded lengths.
api::Status study_supports(const char* family, const strobe_problem& problem);

// The head dimension of the row that serves a problem: 64 or 128.
int study_bucket(const strobe_problem& problem);
const char* study_dtype(const strobe_problem& problem);

constexpr std::size_t aligned_256(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + 255) / 256 * 256);
}

// Greater than the cost of any other family, so that nobody gets them unasked.
constexpr double kFa1Cost = 1e15, kStandardCost = 2e15;

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_STUDY_H_
