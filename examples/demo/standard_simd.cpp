#include "standard_simd.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "standard_simd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strobe::demo::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// exp(x) for x <= 0: 2^n times a polynomial for the rest, to about 2e-7 of the result.
HWY_INLINE V exp_of_negative(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V t = hn::Max(hn::Mul(x, hn::Set(d, 1.44269504f)), hn::Set(d, -126.0f));  // x / log 2
  const auto n = hn::NearestInt(t);
  const V f = hn::Mul(hn::Sub(t, hn::ConvertTo(d, n)), hn::Set(d, 0.693147181f));
  V p = hn::Set(d, 1.0f / 720);
  for (const float factor : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = hn::MulAdd(p, f, hn::Set(d, factor));
  }
  const auto exponent = hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, exponent));
}

void softmax_row(float* HWY_RESTRICT row, std::size_t visible, std::size_t size) {
  const D d;
  const std::size_t step = hn::Lanes(d);
  const std::size_t whole = visible / step * step;  // the rest one by one
  std::size_t j = 0;
  V tops = hn::Set(d, row[0]);
  for (; j < whole; j += step) tops = hn::Max(tops, hn::LoadU(d, row + j));
  float top = hn::GetLane(hn::MaxOfLanes(d, tops));
  for (; j < visible; ++j) top = std::max(top, row[j]);

  V sums = hn::Zero(d);
  for (j = 0; j < whole; j += step) {
    const V p = exp_of_negative(d, hn::Sub(hn::LoadU(d, row + j), hn::Set(d, top)));
    sums = hn::Add(sums, p);
    hn::StoreU(p, d, row + j);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; j < visible; ++j) sum += row[j] = std::exp(row[j] - top);

  const float scale = 1 / sum;
  for (j = 0; j < whole; j += step) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, scale)), d, row + j);
  }
  for (; j < visible; ++j) row[j] *= scale;
  std::fill(row + visible, row + size, 0.0f);
}

std::size_t tile_columns() { return 2 * hn::Lanes(D()); }

void multiply_tile(std::size_t depth, float alpha, const float* HWY_RESTRICT a,
                   std::size_t a_stride, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                   std::size_t c_stride) {
  const D d;
  const std::size_t step = hn::Lanes(d);
  // c00 is row 0, left half. Not an array: vectors of some targets cannot be in one.
  V c00 = hn::Zero(d), c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00, c30 = c00, c31 = c00;
  for (std::size_t p = 0; p < depth; ++p) {
    const V left = hn::LoadU(d, b + 2 * p * step);
    const V right = hn::LoadU(d, b + (2 * p + 1) * step);
    const V a0 = hn::Set(d, a[p]), a1 = hn::Set(d, a[a_stride + p]);
    const V a2 = hn::Set(d, a[2 * a_stride + p]), a3 = hn::Set(d, a[3 * a_stride + p]);
    c00 = hn::MulAdd(a0, left, c00), c01 = hn::MulAdd(a0, right, c01);
    c10 = hn::MulAdd(a1, left, c10), c11 = hn::MulAdd(a1, right, c11);
    c20 = hn::MulAdd(a2, left, c20), c21 = hn::MulAdd(a2, right, c21);
    c30 = hn::MulAdd(a3, left, c30), c31 = hn::MulAdd(a3, right, c31);
  }
  const auto add = [&](V sum, float* to) {
    hn::StoreU(hn::MulAdd(sum, hn::Set(d, alpha), hn::LoadU(d, to)), d, to);
  };
  add(c00, c), add(c01, c + step);
  add(c10, c + c_stride), add(c11, c + c_stride + step);
  add(c20, c + 2 * c_stride), add(c21, c + 2 * c_stride + step);
  add(c30, c + 3 * c_stride), add(c31, c + 3 * c_stride + step);
}

}  // namespace strobe::demo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strobe::demo {

HWY_EXPORT(softmax_row);
HWY_EXPORT(tile_columns);
HWY_EXPORT(multiply_tile);

void softmax_row(float* row, std::size_t visible, std::size_t size) {
  HWY_DYNAMIC_DISPATCH(softmax_row)(row, visible, size);
}

std::size_t tile_columns() { return HWY_DYNAMIC_DISPATCH(tile_columns)(); }

void multiply_tile(std::size_t depth, float alpha, const float* a, std::size_t a_stride,
                   const float* b, float* c, std::size_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_tile)(depth, alpha, a, a_stride, b, c, c_stride);
}

}  // namespace strobe::demo
#endif  // HWY_ONCE
