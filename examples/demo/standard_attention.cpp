// Compiled with -O3 -ffast-math, which lets compilers turn the loops below into vector
// instructions. No infinity or NaN occurs in them.
#include "standard_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#ifdef STROBE_DEMO_OPENBLAS
#include <cblas.h>
#endif

// One copy of a loop per instruction set, chosen when the program starts.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define STROBE_DEMO_SIMD \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define STROBE_DEMO_SIMD
#endif

namespace strobe::demo {
namespace {

// Calls f(begin, end) on a thread for each part of [0, count). Parts are of equal size in units of
// `unit`.
template <class F>
void parallel_ranges(std::int64_t count, std::int64_t unit, int threads, F f) {
  const std::int64_t units = (count + unit - 1) / unit;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    const std::int64_t begin = std::min(count, units * t / threads * unit);
    const std::int64_t end = std::min(count, units * (t + 1) / threads * unit);
    workers.emplace_back([=] { f(begin, end); });
  }
  for (std::thread& worker : workers) worker.join();
}

// exp(x) for x <= 0, within 2 ulp: 2^n times a polynomial for the fraction.
inline float exp_of_negative(float x) {
  const float t = std::max(x * 1.44269504f, -126.0f);  // x / log 2
  const float n = std::nearbyint(t);
  const float f = (t - n) * 0.693147181f;
  const float p =
      1 +
      f * (1 + f * (0.5f + f * (0.166666667f +
                                f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

// Softmax of the first `visible` of `size` scores in place; the others become 0.
STROBE_DEMO_SIMD void softmax_row(float* row, std::int64_t visible, std::int64_t size) {
  float top = row[0];
  for (std::int64_t j = 0; j < visible; ++j) top = std::max(top, row[j]);
  float sum = 0;
  for (std::int64_t j = 0; j < visible; ++j) sum += row[j] = exp_of_negative(row[j] - top);
  const float scale = 1 / sum;
  for (std::int64_t j = 0; j < visible; ++j) row[j] *= scale;
  std::fill(row + visible, row + size, 0.0f);
}

#ifdef STROBE_DEMO_OPENBLAS

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
              const float* b, bool transpose_b, float* c, int threads) {
  openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(k), b, static_cast<int>(transpose_b ? k : n), 0, c,
              static_cast<int>(n));
}

#else

constexpr int kRows = 4;              // of c in registers
constexpr int kColumns = 32;          // likewise
constexpr std::int64_t kDepth = 256;  // of b: kDepth x kColumns stay in the first-level cache

// c[kRows, kColumns] += alpha a[kRows, depth] b[depth, kColumns]; b is packed.
STROBE_DEMO_SIMD void multiply_tile(std::int64_t depth, float alpha, const float* a,
                                    std::int64_t a_stride, const float* b, float* c,
                                    std::int64_t c_stride) {
  float sums[kRows][kColumns] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kColumns; ++j) {
        sums[r][j] += a[r * a_stride + p] * b[p * kColumns + j];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) c[r * c_stride + j] += alpha * sums[r][j];
  }
}

// c[m, n] = alpha a[m, k] b, where b is [k, n], or [n, k] transposed. m, n multiples of kColumns.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
              const float* b, bool transpose_b, float* c, int threads) {
  parallel_ranges(m, kRows, threads, [=](std::int64_t begin, std::int64_t end) {
    std::vector<float> panel(kDepth * kColumns);
    std::fill(c + begin * n, c + end * n, 0.0f);
    for (std::int64_t p = 0; p < k; p += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - p);
      for (std::int64_t j = 0; j < n; j += kColumns) {
        for (std::int64_t d = 0; d < depth; ++d) {
          for (std::int64_t jj = 0; jj < kColumns; ++jj) {
            panel[d * kColumns + jj] =
                transpose_b ? b[(j + jj) * k + p + d] : b[(p + d) * n + j + jj];
          }
        }
        for (std::int64_t i = begin; i < end; i += kRows) {
          multiply_tile(depth, alpha, a + i * k + p, k, panel.data(), c + i * n + j, n);
        }
      }
    }
  });
}

#endif

}  // namespace

#ifdef STROBE_DEMO_OPENBLAS
const char* gemm_name() { return "OpenBLAS"; }
#else
const char* gemm_name() { return "own loops"; }
#endif

void standard_attention(std::int64_t seqlen, std::int64_t dim, bool causal, int threads,
                        const float* q, const float* k, const float* v, float* scores, float* o) {
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  multiply(seqlen, seqlen, dim, scale, q, k, /*transpose_b=*/true, scores, threads);
  // Interleaved rows, so that causal work is even.
  parallel_ranges(threads, 1, threads, [=](std::int64_t first, std::int64_t) {
    for (std::int64_t i = first; i < seqlen; i += threads) {
      softmax_row(scores + i * seqlen, causal ? i + 1 : seqlen, seqlen);
    }
  });
  multiply(seqlen, dim, seqlen, 1, scores, v, /*transpose_b=*/false, o, threads);
}

}  // namespace strobe::demo
