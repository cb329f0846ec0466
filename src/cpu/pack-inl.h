// Moving tensors in and out of float32 scratch: rows of any dtype and stride to float rows, rows to
// panels (transposed) and back.
#if defined(STROBE_SRC_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_PACK_INL_H_
#undef STROBE_SRC_CPU_PACK_INL_H_
#else
#define STROBE_SRC_CPU_PACK_INL_H_
#endif

#include <strobe/strobe.h>

#include <cstring>

#include "cpu/convert.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// to[0..n) = scale * from, as float; to[n..padded) = 0.
HWY_NOINLINE void LoadRow(strobe_dtype dtype, const void* from, size_t n, size_t padded,
                          float scale, float* HWY_RESTRICT to) {
  const Tag d;
  const Vec factor = hn::Set(d, scale);
  size_t x = 0;
  if (dtype == STROBE_F32) {
    const auto* row = static_cast<const float*>(from);
    for (; x + kLanes <= n; x += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, row + x), factor), d, to + x);
    for (; x < n; ++x) to[x] = row[x] * scale;
  } else if (dtype == STROBE_BF16) {
    const auto* row = static_cast<const uint16_t*>(from);
    for (; x + kLanes <= n; x += kLanes) hn::StoreU(hn::Mul(LoadBf16(row + x), factor), d, to + x);
    for (; x < n; ++x) to[x] = bf16_to_float(row[x]) * scale;
  } else {
    const auto* row = static_cast<const uint16_t*>(from);
    for (; x + kLanes <= n; x += kLanes) hn::StoreU(hn::Mul(LoadF16(row + x), factor), d, to + x);
    for (; x < n; ++x) to[x] = f16_to_float(row[x]) * scale;
  }
  for (; x < padded; ++x) to[x] = 0;
}

// from[0..n), rounded to nearest even, to a row of dtype.
HWY_NOINLINE void StoreRow(strobe_dtype dtype, const float* HWY_RESTRICT from, size_t n, void* to) {
  if (dtype == STROBE_F32) {
    std::memcpy(to, from, n * sizeof(float));
  } else if (dtype == STROBE_BF16) {
    auto* row = static_cast<uint16_t*>(to);
    for (size_t x = 0; x < n; ++x) row[x] = float_to_bf16(from[x]);
  } else {
    auto* row = static_cast<uint16_t*>(to);
    for (size_t x = 0; x < n; ++x) row[x] = float_to_f16(from[x]);
  }
}

// Transposes `rows` x `cols` (row strides ld_from, ld_to in floats): to[c][r] = from[r][c].
HWY_NOINLINE void Transpose(const float* HWY_RESTRICT from, size_t ld_from, size_t rows,
                            size_t cols, float* HWY_RESTRICT to, size_t ld_to) {
  size_t done_rows = 0, done_cols = 0;
#if HWY_TARGET != HWY_SCALAR
  // 4 x 4 blocks: two rounds of interleaving.
  const hn::FixedTag<float, 4> d4;
  const hn::Repartition<double, decltype(d4)> d2;
  done_rows = rows / 4 * 4;
  done_cols = cols / 4 * 4;
  for (size_t r = 0; r < done_rows; r += 4) {
    for (size_t c = 0; c < done_cols; c += 4) {
      const float* f = from + r * ld_from + c;
      const auto r0 = hn::LoadU(d4, f), r1 = hn::LoadU(d4, f + ld_from);
      const auto r2 = hn::LoadU(d4, f + 2 * ld_from), r3 = hn::LoadU(d4, f + 3 * ld_from);
      const auto ab_lo = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
      const auto ab_hi = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
      const auto cd_lo = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto cd_hi = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      float* t = to + c * ld_to + r;
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_lo, cd_lo)), d4, t);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_lo, cd_lo)), d4, t + ld_to);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_hi, cd_hi)), d4, t + 2 * ld_to);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_hi, cd_hi)), d4, t + 3 * ld_to);
    }
  }
#endif
  for (size_t r = 0; r < done_rows; ++r) {
    for (size_t c = done_cols; c < cols; ++c) to[c * ld_to + r] = from[r * ld_from + c];
  }
  for (size_t r = done_rows; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) to[c * ld_to + r] = from[r * ld_from + c];
  }
}

// from[0..n) *= factor, n a multiple of the vector.
HWY_INLINE void ScaleLanes(float* x, size_t n, const float* factor) {
  const Tag d;
  const Vec f0 = hn::Load(d, factor), f1 = hn::Load(d, factor + kLanes);
  for (size_t i = 0; i < n; i += kPanel) {
    hn::Store(hn::Mul(hn::Load(d, x + i), f0), d, x + i);
    hn::Store(hn::Mul(hn::Load(d, x + i + kLanes), f1), d, x + i + kLanes);
  }
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
