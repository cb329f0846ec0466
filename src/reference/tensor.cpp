#include "reference/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace strobe::reference {
namespace {

double load_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The nearest multiple of the format's spacing at x, ties to even, with no bound on the exponent.
// digits: bits of the significand, the leading one included; min_exponent: of the least number,
// 2^min_exponent.
double round_to_digits(double x, int digits, int min_exponent) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent;
  std::frexp(x, &exponent);  // |x| in [2^(exponent - 1), 2^exponent)
  const int spacing = std::max(exponent - digits, min_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, -spacing)), spacing);
}

std::uint16_t store_bf16(double value) {
  // bf16 is the upper half of float32, so the rounded value is exact in float32 (or overflows to
  // inf).
  const float rounded = static_cast<float>(round_to_digits(value, 8, -133));
  std::uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

std::uint16_t store_f16(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  const double magnitude = std::fabs(round_to_digits(value, 11, -24));
  if (magnitude >= 65536) return sign | 0x7C00;
  if (magnitude < std::ldexp(1, -14)) {  // subnormal
    return sign | static_cast<std::uint16_t>(std::ldexp(magnitude, 24));
  }
  int exponent;
  std::frexp(magnitude, &exponent);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 11 - exponent)) - 1024;
  return sign | static_cast<std::uint16_t>(((exponent + 14) << 10) | fraction);
}

template <class T>
T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

double load(const void* base, strobe_dtype dtype, std::int64_t index) {
  switch (dtype) {
    case STROBE_F64:
      return read<double>(base, index);
    case STROBE_BF16: {
      const std::uint32_t bits = std::uint32_t{read<std::uint16_t>(base, index)} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case STROBE_F16:
      return load_f16(read<std::uint16_t>(base, index));
    default:
      return read<float>(base, index);
  }
}

void store(void* base, strobe_dtype dtype, std::int64_t index, double value) {
  switch (dtype) {
    case STROBE_F64:
      return write(base, index, value);
    case STROBE_BF16:
      return write(base, index, store_bf16(value));
    case STROBE_F16:
      return write(base, index, store_f16(value));
    default:
      return write(base, index, static_cast<float>(value));
  }
}

std::vector<Sequence> sequences(const strobe_problem& problem, const strobe_run_args& args) {
  std::vector<Sequence> result;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    Sequence s{b, b, 0, problem.seqlen_q, 0, problem.seqlen_k, 0};
    if (problem.lengths == STROBE_VARLEN) {
      s.batch = 0;
      s.q_begin = args.cu_seqlens_q[b];
      s.len_q = args.cu_seqlens_q[b + 1] - s.q_begin;
      s.k_begin = args.cu_seqlens_k[b];
      s.len_k = args.cu_seqlens_k[b + 1] - s.k_begin;
    }
    if (problem.lengths != STROBE_DENSE) {
      if (args.seqlens_q) s.len_q = args.seqlens_q[b];
      if (args.seqlens_k) s.len_k = args.seqlens_k[b];
    }
    s.offset = problem.query_offset == STROBE_AUTO ? s.len_k - s.len_q : problem.query_offset;
    result.push_back(s);
  }
  return result;
}

std::int64_t longest_k(const std::vector<Sequence>& sequences) {
  std::int64_t longest = 0;
  for (const Sequence& s : sequences) longest = std::max(longest, s.len_k);
  return longest;
}

Extent q_extent(const strobe_problem& problem) {
  if (problem.lengths == STROBE_VARLEN) return {1, problem.total_q};
  return {problem.batch, problem.seqlen_q};
}

Extent k_extent(const strobe_problem& problem) {
  if (problem.lengths == STROBE_VARLEN) return {1, problem.total_k};
  return {problem.batch, problem.seqlen_k};
}

void load_rows(const void* base, strobe_dtype dtype, const strobe_strides& strides,
               std::int64_t batch, std::int64_t begin, std::int64_t count, std::int64_t head,
               std::int64_t dim, double* out) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t first = offset_of(strides, batch, begin + row, head);
    for (std::int64_t d = 0; d < dim; ++d) out[row * dim + d] = load(base, dtype, first + d);
  }
}

void store_rows(void* base, strobe_dtype dtype, const strobe_strides& strides, std::int64_t batch,
                std::int64_t begin, std::int64_t count, std::int64_t head, std::int64_t dim,
                const double* in) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t first = offset_of(strides, batch, begin + row, head);
    for (std::int64_t d = 0; d < dim; ++d) store(base, dtype, first + d, in[row * dim + d]);
  }
}

void fill(void* base, strobe_dtype dtype, const strobe_strides& strides, Extent extent,
          std::int64_t heads, std::int64_t dim, double value) {
  if (base == nullptr) return;
  for (std::int64_t batch = 0; batch < extent.batch; ++batch) {
    for (std::int64_t row = 0; row < extent.rows; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t first = offset_of(strides, batch, row, head);
        for (std::int64_t d = 0; d < dim; ++d) store(base, dtype, first + d, value);
      }
    }
  }
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum[8] = {};  // eight chains, which the compiler turns into SIMD lanes
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void add_scaled(double factor, const double* x, std::int64_t n, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace strobe::reference
