// The one matrix product of the CPU backend: C (rows x panel) from A, whose elements are broadcast,
// and B, whose rows are vectors. S^T = K Q^T, O^T = V^T P^T, dQ^T = K^T dS^T, dV = P^T dO and dK =
// dS^T Q are all this product.
#if defined(STROBE_SRC_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_GEMM_INL_H_
#undef STROBE_SRC_CPU_GEMM_INL_H_
#else
#define STROBE_SRC_CPU_GEMM_INL_H_
#endif

#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// How A lies in memory: element (row r, step k) at a[r * lda + k] or at a[k * lda + r].
enum class Order { kRowMajor, kStepMajor };
// What becomes of C: overwritten, added to, or first scaled lane by lane (the softmax's rescale)
// and then added to.
enum class Update { kSet, kAdd, kRescale };

// Row strides of B and C, where they are known at compile time; 0 elsewhere.
struct Strides {
  size_t b = 0, c = 0;
};

// Steps per turn of the inner loop. Instructions are what counts: next to 12 multiply-adds and 8
// loads, a turn's own 4 are many for a core that shares its issue slots with another thread. With
// 12 rows, more steps than 2 need more addresses than there are registers.
constexpr size_t kUnroll = kRows == 6 ? 8 : 2;

// One register tile: kR rows x kPanel columns over `steps` steps.
template <size_t kR, Order kOrder, Update kUpdate, Strides kLd>
HWY_INLINE void GemmTile(const float* HWY_RESTRICT a, size_t lda, const float* HWY_RESTRICT b,
                         size_t ldb, size_t steps, float* HWY_RESTRICT c, size_t ldc,
                         const float* HWY_RESTRICT rescale) {
  const Tag d;
  if constexpr (kLd.b != 0) ldb = kLd.b;
  if constexpr (kLd.c != 0) ldc = kLd.c;
  Vec acc[kR][2];
  if constexpr (kUpdate == Update::kSet) {
    for (size_t r = 0; r < kR; ++r) acc[r][0] = acc[r][1] = hn::Zero(d);
  } else {
    for (size_t r = 0; r < kR; ++r) {
      acc[r][0] = hn::Load(d, c + r * ldc);
      acc[r][1] = hn::Load(d, c + r * ldc + kLanes);
    }
    if constexpr (kUpdate == Update::kRescale) {
      const Vec s0 = hn::Load(d, rescale), s1 = hn::Load(d, rescale + kLanes);
      for (size_t r = 0; r < kR; ++r) {
        acc[r][0] = hn::Mul(acc[r][0], s0);
        acc[r][1] = hn::Mul(acc[r][1], s1);
      }
    }
  }
#pragma GCC unroll kUnroll
  for (size_t k = 0; k < steps; ++k) {
    const Vec b0 = hn::Load(d, b), b1 = hn::Load(d, b + kLanes);
    b += ldb;
#pragma GCC unroll 16
    for (size_t r = 0; r < kR; ++r) {
      const Vec x = hn::Set(d, kOrder == Order::kRowMajor ? a[r * lda] : a[r]);
      acc[r][0] = hn::MulAdd(x, b0, acc[r][0]);
      acc[r][1] = hn::MulAdd(x, b1, acc[r][1]);
    }
    a += kOrder == Order::kRowMajor ? 1 : lda;
  }
  for (size_t r = 0; r < kR; ++r) {
    hn::Store(acc[r][0], d, c + r * ldc);
    hn::Store(acc[r][1], d, c + r * ldc + kLanes);
  }
}

// The last rows % kRows rows.
template <size_t kR, Order kOrder, Update kUpdate, Strides kLd>
HWY_INLINE void GemmTail(size_t rows, const float* a, size_t lda, const float* b, size_t ldb,
                         size_t steps, float* c, size_t ldc, const float* rescale) {
  if constexpr (kR > 0) {
    if (rows == kR) {
      GemmTile<kR, kOrder, kUpdate, kLd>(a, lda, b, ldb, steps, c, ldc, rescale);
    } else {
      GemmTail<kR - 1, kOrder, kUpdate, kLd>(rows, a, lda, b, ldb, steps, c, ldc, rescale);
    }
  }
}

// C[rows][kPanel] (row stride ldc) from A and B[steps][kPanel] (row stride ldb). b, c and rescale
// are vector-aligned, ldb and ldc multiples of the vector.
template <Order kOrder, Update kUpdate, Strides kLd = Strides{}>
HWY_NOINLINE void GemmPanel(size_t rows, const float* a, size_t lda, const float* b, size_t ldb,
                            size_t steps, float* c, size_t ldc, const float* rescale = nullptr) {
  const size_t a_step = kOrder == Order::kRowMajor ? lda : 1;
  size_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    GemmTile<kRows, kOrder, kUpdate, kLd>(a + r * a_step, lda, b, ldb, steps, c + r * ldc, ldc,
                                          rescale);
  }
  GemmTail<kRows - 1, kOrder, kUpdate, kLd>(rows - r, a + r * a_step, lda, b, ldb, steps,
                                            c + r * ldc, ldc, rescale);
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
