// Sizes that cannot wrap: sums and products of non-negative int64 that stick at INT64_MAX, so that
// a chain of them needs one comparison at the end.
#ifndef STROBE_SRC_API_CHECKED_MATH_H_
#define STROBE_SRC_API_CHECKED_MATH_H_

#include <cstdint>

namespace strobe::api {

inline constexpr std::int64_t kTooLarge = INT64_MAX;

constexpr std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kTooLarge : product;
}

constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooLarge : sum;
}

// |stride|, with INT64_MIN sticking too.
constexpr std::int64_t magnitude(std::int64_t stride) {
  return stride == INT64_MIN ? kTooLarge : stride < 0 ? -stride : stride;
}

}  // namespace strobe::api

#endif  // STROBE_SRC_API_CHECKED_MATH_H_
