// Whether two strided tensors share a byte, and whether one shares a byte with itself.
#ifndef STROBE_SRC_API_OVERLAP_H_
#define STROBE_SRC_API_OVERLAP_H_

#include <cstdint>

#include "api/tensors.h"

namespace strobe::api {

// The addresses [begin, end) from the lowest byte of a tensor to its highest. Empty without
// elements.
struct Span {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};
Span span_of(const Tensor& tensor, const void* data);

// False only if no byte is in both. Exact for views of one buffer with common strides, such as dq,
// dk and dv inside a packed [batch, seq, 3, heads, dim], and for nearly all others: the search for
// a common byte is cut short after a fixed number of steps, and an undecided pair counts as shared.
bool may_share(const Tensor& a, const void* a_data, const Tensor& b, const void* b_data);

// Whether all elements lie apart. The rule: with the dimensions of more than one element in
// ascending order of |stride|, each |stride| exceeds the span of all dimensions before it. Any
// permutation and padding of a contiguous tensor passes; strides that interleave dimensions without
// nesting do not, even where no two elements happen to meet.
bool elements_apart(const Tensor& tensor);

}  // namespace strobe::api

#endif  // STROBE_SRC_API_OVERLAP_H_
