#include "api/overlap.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/checked_math.h"

namespace strobe::api {
namespace {

// How far apart, in bytes, one dimension can put an element of a from one of b: stride * x for any
// whole x in [low, high].
struct Term {
  std::int64_t stride;  // > 0
  std::int64_t low;     // <= 0
  std::int64_t high;    // >= 0
};

// Every difference (byte of a) - (byte of b) that two tensors can have, relative to their bases.
class Differences {
 public:
  Differences(const Tensor& a, const Tensor& b) {
    add_tensor(a, 1);
    add_tensor(b, -1);
    // What the terms from i on can reach.
    for (int i = count_ - 1; i >= 0; --i) {
      low_[i] = low_[i + 1] + terms_[i].stride * terms_[i].low;
      high_[i] = high_[i + 1] + terms_[i].stride * terms_[i].high;
    }
  }

  // Whether some choice of every x makes exactly `delta`; true when the steps run out.
  bool reach(std::int64_t delta) { return reach_from(0, delta); }

 private:
  void add_tensor(const Tensor& t, int sign) {
    // Every tensor's innermost dimension is a run of bytes.
    add(1, sign * (t.sizes[3] * t.element_bytes - 1));
    for (int d = 0; d < 3; ++d) {
      if (t.sizes[d] > 1 && t.strides[d] != 0) {
        add(t.strides[d] * t.element_bytes, sign * (t.sizes[d] - 1));
      }
    }
  }

  // Index 0 to `last` (which may be negative) along a stride.
  void add(std::int64_t stride, std::int64_t last) {
    if (stride < 0) {
      stride = -stride;
      last = -last;
    }
    // The terms stay in descending order of stride, so that each stride has one.
    Term* const end = terms_.data() + count_;
    Term* const term =
        std::find_if(terms_.data(), end, [&](const Term& t) { return t.stride <= stride; });
    if (term == end || term->stride != stride) {
      std::move_backward(term, end, end + 1);
      *term = {stride, 0, 0};
      ++count_;
    }
    (last < 0 ? term->low : term->high) += last;
  }

  // Depth first, largest stride first: for nested strides one or two values of x remain at each.
  bool reach_from(int i, std::int64_t delta) {
    if (delta < low_[i] || delta > high_[i]) return false;
    if (i == count_ - 1) return true;  // its stride is one byte
    const Term& t = terms_[i];
    const std::int64_t first = std::max(t.low, ceil_div(delta - high_[i + 1], t.stride));
    const std::int64_t last = std::min(t.high, floor_div(delta - low_[i + 1], t.stride));
    for (std::int64_t x = first; x <= last; ++x) {
      if (steps_-- == 0) return true;
      if (reach_from(i + 1, delta - x * t.stride)) return true;
    }
    return false;
  }

  static std::int64_t floor_div(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
  }
  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

  std::array<Term, 7> terms_;  // three dimensions of each tensor, and bytes
  int count_ = 0;
  std::array<std::int64_t, 8> low_{}, high_{};
  int steps_ = 1000;
};

}  // namespace

Span span_of(const Tensor& tensor, const void* data) {
  const Extent extent = extent_of(tensor);
  const auto base = reinterpret_cast<std::uintptr_t>(data);
  return {base + static_cast<std::uintptr_t>(extent.begin),
          base + static_cast<std::uintptr_t>(extent.end)};
}

bool may_share(const Tensor& a, const void* a_data, const Tensor& b, const void* b_data) {
  const Span span_a = span_of(a, a_data), span_b = span_of(b, b_data);
  if (span_a.begin == span_a.end || span_b.begin == span_b.end || !span_a.meets(span_b)) {
    return false;
  }
  return Differences(a, b).reach(static_cast<std::int64_t>(
      reinterpret_cast<std::uintptr_t>(b_data) - reinterpret_cast<std::uintptr_t>(a_data)));
}

bool elements_apart(const Tensor& tensor) {
  std::array<std::pair<std::int64_t, std::int64_t>, 4> dims;  // |stride|, size
  for (int d = 0; d < 4; ++d) dims[d] = {magnitude(tensor.strides[d]), tensor.sizes[d]};
  std::sort(dims.begin(), dims.end());
  std::int64_t span = 0;  // largest distance of two elements so far
  for (const auto& [stride, size] : dims) {
    if (size <= 1) continue;
    if (stride <= span) return false;
    span = saturating_add(span, saturating_mul(stride, size - 1));
  }
  return true;
}

}  // namespace strobe::api
