// Small things the passes share: finding an item's sequence, storing a row.
#ifndef STROBE_SRC_CPU_ITEMS_H_
#define STROBE_SRC_CPU_ITEMS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/convert.h"
#include "cpu/job.h"

namespace strobe::cpu {

struct Item {
  std::int64_t b;      // sequence
  std::int64_t index;  // among the items of that sequence
};

// Item `index` of all, where sequence b has items first[b] to first[b + 1].
inline Item find_item(const std::int64_t* first, std::int64_t batch, std::int64_t index) {
  const std::int64_t b = std::upper_bound(first, first + batch + 1, index) - first - 1;
  return {b, index - first[b]};
}

// Rounds n floats to a row of dtype.
inline void store_row(strobe_dtype dtype, const float* from, std::int64_t n, void* to) {
  if (dtype == STROBE_F32) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  } else if (dtype == STROBE_BF16) {
    std::transform(from, from + n, static_cast<std::uint16_t*>(to), float_to_bf16);
  } else {
    std::transform(from, from + n, static_cast<std::uint16_t*>(to), float_to_f16);
  }
}

inline float load_element(strobe_dtype dtype, const void* from, std::int64_t x) {
  if (dtype == STROBE_F32) return static_cast<const float*>(from)[x];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(from)[x];
  return dtype == STROBE_BF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_ITEMS_H_
