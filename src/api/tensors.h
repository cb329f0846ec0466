// Every tensor that a run of a resolved problem touches: its shape, strides and place in
// strobe_run_args. One list serves the checks of pointers, the traffic estimate and the fuzzer.
#ifndef STROBE_SRC_API_TENSORS_H_
#define STROBE_SRC_API_TENSORS_H_

#include <strobe/strobe.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace strobe::api {

struct Tensor {
  const char* name;         // the field of strobe_run_args
  std::size_t args_offset;  // of that field, in bytes
  bool written;             // an output
  bool required;            // else the pointer may be NULL
  int element_bytes;
  int alignment_bytes;                  // a pointer must be a multiple of this
  std::array<std::int64_t, 4> sizes;    // outermost first
  std::array<std::int64_t, 4> strides;  // in elements

  std::int64_t elements() const;  // sticks at INT64_MAX
};

// Bytes that the tensor touches, relative to its pointer: [begin, end), begin <= 0. Empty if it has
// no elements. Sticks at +-INT64_MAX, which resolve() refuses.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Extent extent_of(const Tensor& tensor);

class TensorList {
 public:
  // Backward with every feature has 21, and the workspace comes to them.
  static constexpr std::size_t kCapacity = 24;

  void add(const Tensor& tensor) { items_[count_++] = tensor; }
  std::size_t size() const { return count_; }
  const Tensor* begin() const { return items_.data(); }
  const Tensor* end() const { return items_.data() + count_; }

 private:
  std::array<Tensor, kCapacity> items_;
  std::size_t count_ = 0;
};

// All but the workspace and the partial results of a merge.
TensorList tensors_of(const strobe_problem& problem);

// STROBE_MERGE: the shape of each partial_o and partial_lse.
Tensor partial_o_of(const strobe_problem& problem);
Tensor partial_lse_of(const strobe_problem& problem);

// The strides a caller may set: which tensor they belong to, and its dimensions.
struct StrideField {
  const char* name;  // of the field, "q_strides"
  strobe_strides strobe_problem::*strides;
  bool keys;  // rows of k and v, and their heads; else of q
  enum Inner { kHeadDim, kHeadDimV, kNone } inner;
};
std::span<const StrideField> stride_fields();

// The tensor of a stride field: sizes [batch, rows, heads, inner], varlen [1, total, heads, inner].
Tensor tensor_of(const strobe_problem& problem, const StrideField& field);

bool is_output_of(strobe_op op, const StrideField& field);

// float32, or float64 for a float64 problem: lse, sinks, slopes, dbias.
strobe_dtype auxiliary_dtype(const strobe_problem& problem);

// Whether the operation computes scores, so that scale, masks and bias mean something to it.
constexpr bool uses_scores(strobe_op op) {
  return op == STROBE_FORWARD || op == STROBE_BACKWARD || op == STROBE_PROBS;
}

// Whether a run needs dropout's seed and offset.
constexpr bool uses_dropout(const strobe_problem& p) {
  return p.dropout_p > 0 && p.op != STROBE_MERGE && p.op != STROBE_PROBS;
}

}  // namespace strobe::api

#endif  // STROBE_SRC_API_TENSORS_H_
