#include "standard_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "standard_simd.h"

#ifdef STROBE_DEMO_OPENBLAS
#include <cblas.h>
#endif

namespace strobe::demo {
namespace {

// Calls f(t) for t in [0, threads), each on a thread of its own.
template <class F>
void parallel(int threads, F f) {
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) workers.emplace_back(f, t);
  for (std::thread& worker : workers) worker.join();
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

// c[m, n] = alpha a[m, k] b, where b is [k, n], or [n, k] transposed. m and n are multiples of 32.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
              const float* b, bool transpose_b, float* c, int threads) {
  constexpr std::int64_t kDepth = 256;  // kDepth rows of a panel of b stay in the first-level cache
  constexpr auto kRows = static_cast<std::int64_t>(kTileRows);
  const auto columns = static_cast<std::int64_t>(tile_columns());
  parallel(threads, [=](int t) {
    const std::int64_t begin = m / kRows * t / threads * kRows;
    const std::int64_t end = m / kRows * (t + 1) / threads * kRows;
    std::vector<float> panel(static_cast<std::size_t>(kDepth * columns));
    std::fill(c + begin * n, c + end * n, 0.0f);
    for (std::int64_t p = 0; p < k; p += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - p);
      for (std::int64_t j = 0; j < n; j += columns) {
        for (std::int64_t d = 0; d < depth; ++d) {
          for (std::int64_t jj = 0; jj < columns; ++jj) {
            panel[d * columns + jj] =
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

std::string choose_gemm() {
#ifdef STROBE_DEMO_OPENBLAS
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
#if defined(__x86_64__)
  if (std::string(openblas_get_corename()) == "Prescott") {
    if (__builtin_cpu_supports("avx512f")) {
      setenv(kVariable, "SkylakeX", /*overwrite=*/0);
    } else if (__builtin_cpu_supports("avx2")) {
      setenv(kVariable, "Haswell", /*overwrite=*/0);
    }
  }
#endif
  const char* chosen = std::getenv(kVariable);
  return std::string("OpenBLAS, ") + (chosen ? chosen : openblas_get_corename()) + " kernels";
#else
  return "own loops; with OpenBLAS it would be faster";
#endif
}

void standard_attention(std::int64_t seqlen, std::int64_t dim, bool causal, int threads,
                        const float* q, const float* k, const float* v, float* scores, float* o) {
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  multiply(seqlen, seqlen, dim, scale, q, k, /*transpose_b=*/true, scores, threads);
  parallel(threads, [=](int t) {  // interleaved rows, so that causal work is even
    for (std::int64_t i = t; i < seqlen; i += threads) {
      softmax_row(scores + i * seqlen, causal ? i + 1 : seqlen, seqlen);
    }
  });
  multiply(seqlen, dim, seqlen, 1, scores, v, /*transpose_b=*/false, o, threads);
}

}  // namespace strobe::demo
