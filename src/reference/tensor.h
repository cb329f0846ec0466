// Reading and writing tensors of any dtype as float64, and where the sequences of a batch lie in
// them.
#ifndef STROBE_SRC_REFERENCE_TENSOR_H_
#define STROBE_SRC_REFERENCE_TENSOR_H_

#include <strobe/strobe.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace strobe::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

double load(const void* base, strobe_dtype dtype, std::int64_t index);         // exact
void store(void* base, strobe_dtype dtype, std::int64_t index, double value);  // nearest even, once

// dtype of lse, sinks, slopes, dbias ... in a problem of this dtype.
inline strobe_dtype aux_dtype(strobe_dtype dtype) {
  return dtype == STROBE_F64 ? STROBE_F64 : STROBE_F32;
}

// Element (batch, row, head, 0) of q, k, v, o and the like, and element (batch, head, row) of lse.
inline std::int64_t offset_of(const strobe_strides& strides, std::int64_t batch, std::int64_t row,
                              std::int64_t head) {
  return batch * strides.batch + row * strides.seq + head * strides.head;
}

// One sequence of the batch. Row i of it is row q_begin + i of batch entry `batch` of q, o, lse ...
struct Sequence {
  std::int64_t index;  // in the batch
  std::int64_t batch;  // index in the tensors' batch dimension: 0 for varlen
  std::int64_t q_begin, len_q;
  std::int64_t k_begin, len_k;
  std::int64_t offset;  // query i's diagonal is key i + offset
};
std::vector<Sequence> sequences(const strobe_problem& problem, const strobe_run_args& args);
std::int64_t longest_k(const std::vector<Sequence>& sequences);  // the largest len_k; 0 for none

// Batch entries and rows per entry of q-like and k-like tensors: varlen tensors are one long entry.
struct Extent {
  std::int64_t batch, rows;
};
Extent q_extent(const strobe_problem& problem);
Extent k_extent(const strobe_problem& problem);

// Rows [begin, begin + count) of one head, converted to a contiguous [count, dim].
void load_rows(const void* base, strobe_dtype dtype, const strobe_strides& strides,
               std::int64_t batch, std::int64_t begin, std::int64_t count, std::int64_t head,
               std::int64_t dim, double* out);
void store_rows(void* base, strobe_dtype dtype, const strobe_strides& strides, std::int64_t batch,
                std::int64_t begin, std::int64_t count, std::int64_t head, std::int64_t dim,
                const double* in);

// Writes `value` to every element of a tensor [extent.batch, extent.rows, heads, dim]. Null:
// nothing.
void fill(void* base, strobe_dtype dtype, const strobe_strides& strides, Extent extent,
          std::int64_t heads, std::int64_t dim, double value);

double dot(const double* a, const double* b, std::int64_t n);
void add_scaled(double factor, const double* x, std::int64_t n, double* y);  // y += factor * x

}  // namespace strobe::reference

#endif  // STROBE_SRC_REFERENCE_TENSOR_H_
