// Merging partial results by LSE: out = sum exp(lse_n - lse) part_n with lse = log sum exp(lse_n).
// (FlashAttention's split-KV combine.)
#ifndef STROBE_SRC_CPU_MERGE_H_
#define STROBE_SRC_CPU_MERGE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace strobe::cpu {

// One row of `dim` floats. part_lse(n) and part_o(n) give part n; part_o is called for one part at
// a time. A part with lse = -inf is left out, and a part alone has weight exactly 1, so merging
// with nothing changes no bit. Returns lse.
template <class Lse, class O>
float merge_row(std::int64_t parts, const Lse& part_lse, const O& part_o, std::int64_t dim,
                float* out) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  float largest = kNothing;
  for (std::int64_t n = 0; n < parts; ++n) largest = std::max(largest, part_lse(n));
  double sum = 0;  // a NaN among the parts makes it NaN, and with it the result
  for (std::int64_t n = 0; n < parts; ++n) {
    if (part_lse(n) != kNothing) sum += std::exp(static_cast<double>(part_lse(n)) - largest);
  }
  if (sum == 0) {
    std::fill_n(out, dim, 0.0f);
    return kNothing;
  }
  const double lse = largest + std::log(sum);
  bool first = true;
  for (std::int64_t n = 0; n < parts; ++n) {
    if (part_lse(n) == kNothing) continue;
    const auto weight = static_cast<float>(std::exp(part_lse(n) - lse));
    const float* o = part_o(n);
    for (std::int64_t x = 0; x < dim; ++x) out[x] = first ? weight * o[x] : out[x] + weight * o[x];
    first = false;
  }
  return static_cast<float>(lse);
}

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_MERGE_H_
