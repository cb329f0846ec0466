// An independent witness of fragment layouts: those that CuTe's headers compute, on the host.
// Without them (CMake's STROBE_CUTE_INCLUDE) the tests are skipped.
#include "warp.h"

#if STROBE_HAS_CUTE
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <random>

namespace strobe::STROBE_TARGET {
namespace {

using cute::Copy_Traits;
using cute::MMA_Traits;

template <class T>
struct Atom;
template <>
struct Atom<bf16> {
  using Traits = MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;
};
template <>
struct Atom<f16> {
  using Traits = MMA_Traits<cute::SM80_16x8x16_F32F16F16F32_TN>;
};

// CuTe numbers the elements of A by m + 16 k, of B by n + 8 k, of C by m + 16 n.
template <class T>
void expect_product() {
  using Traits = typename Atom<T>::Traits;
  const typename Traits::ALayout a_layout;
  const typename Traits::BLayout b_layout;
  const typename Traits::CLayout c_layout;
  std::mt19937 random(3);
  T a[256], b[128];
  f32 c[128], d[128];
  const auto draw = [&] { return static_cast<f32>(static_cast<int>(random() % 17) - 8); };
  for (T& x : a) x = isa::from_float<T>(draw());
  for (T& x : b) x = isa::from_float<T>(draw());
  for (f32& x : c) x = draw();
  run_threads(32, 0, [&] {
    const int lane = static_cast<int>(isa::lane_id());
    u32x4 fa;
    u32 fb[2];
    f32 fd[4];
    for (int r = 0; r < 4; ++r)
      fa[r] = a[a_layout(lane, 2 * r)].bits | static_cast<u32>(a[a_layout(lane, 2 * r + 1)].bits)
                                                  << 16;
    for (int r = 0; r < 2; ++r)
      fb[r] = b[b_layout(lane, 2 * r)].bits | static_cast<u32>(b[b_layout(lane, 2 * r + 1)].bits)
                                                  << 16;
    for (int i = 0; i < 4; ++i) fd[i] = c[c_layout(lane, i)];
    isa::mma_m16n8k16<T>(fd, fa, fb[0], fb[1]);
    for (int i = 0; i < 4; ++i) d[c_layout(lane, i)] = fd[i];
  });
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      f32 sum = c[m + 16 * n];
      for (int k = 0; k < 16; ++k)
        sum += isa::to_float(a[m + 16 * k]) * isa::to_float(b[n + 8 * k]);
      ASSERT_EQ(d[m + 16 * n], sum) << m << ", " << n;
    }
  }
}

TEST(Cute, MmaFragments) {
  expect_product<bf16>();
  expect_product<f16>();
}

// Copy traits map (thread, bit of its value) to a bit of the data, at the source and at the
// destination.
template <class Traits>
void expect_rows(const u16 (&rows)[32][8], const u32x4 (&registers)[32]) {
  const typename Traits::SrcLayout source;
  const typename Traits::DstLayout destination;
  u16 data[256];
  for (int t = 0; t < 32; ++t)
    for (int i = 0; i < 8; ++i) data[source(t, 16 * i) / 16] = rows[t][i];
  for (int t = 0; t < 32; ++t) {
    for (int i = 0; i < 8; ++i) {
      const u32 got = registers[t][i / 2] >> (16 * (i % 2)) & 0xFFFF;
      ASSERT_EQ(got, data[destination(t, 16 * i) / 16]) << t << ", " << i;
    }
  }
}

TEST(Cute, Ldmatrix) {
  std::mt19937 random(4);
  u16 rows[32][8];
  for (auto& row : rows)
    for (u16& x : row) x = static_cast<u16>(random());
  u32x4 plain[32], trans[32];
  run_threads(32, 512, [&] {
    const u32 lane = isa::lane_id(), address = isa::shared_base() + 16 * lane;
    Vec<u16, 8> row;
    for (int i = 0; i < 8; ++i) row[i] = rows[lane][i];
    isa::st_shared(address, row);
    isa::warp_sync();
    plain[lane] = isa::ldmatrix_x4(address);
    trans[lane] = isa::ldmatrix_x4_trans(address);
  });
  expect_rows<Copy_Traits<cute::SM75_U32x4_LDSM_N>>(rows, plain);
  expect_rows<Copy_Traits<cute::SM75_U16x8_LDSM_T>>(rows, trans);
}

}  // namespace
}  // namespace strobe::STROBE_TARGET

#else

TEST(Cute, Witness) { GTEST_SKIP() << "STROBE_CUTE_INCLUDE does not name CuTe's headers"; }

#endif
