// Fragment layouts, against the PTX ISA's own words written down independently of the emulator.
#include <algorithm>
#include <cstdint>
#include <random>

#include "warp.h"

namespace strobe::STROBE_TARGET {
namespace {

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": groupID = laneid / 4,
// threadID_in_group = laneid % 4; element i of a lane's fragment lies at
struct Place {
  u32 row, col;
};
Place a_place(u32 lane, u32 i) {
  const u32 group = lane >> 2, thread = lane & 3;
  const bool upper = i < 2 || (4 <= i && i < 6);
  return {upper ? group : group + 8, thread * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Place b_place(u32 lane, u32 i) {
  const u32 group = lane >> 2, thread = lane & 3;
  return {thread * 2 + (i & 1) + (i < 2 ? 0 : 8), group};
}
Place c_place(u32 lane, u32 i) {
  const u32 group = lane >> 2, thread = lane & 3;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

template <class T>
class MmaTest : public testing::Test {};
using Types = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(MmaTest, Types);

TYPED_TEST(MmaTest, Product) {
  using T = TypeParam;
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    T a[16][16], b[16][8];
    f32 c[16][8], d[16][8];
    // Small whole numbers: every sum is exact, in any order.
    const auto draw = [&] { return static_cast<f32>(static_cast<int>(random() % 17) - 8); };
    for (auto& row : a)
      for (T& x : row) x = isa::from_float<T>(draw());
    for (auto& row : b)
      for (T& x : row) x = isa::from_float<T>(draw());
    for (auto& row : c)
      for (f32& x : row) x = draw();
    const auto body = [&] {
      const u32 lane = isa::lane_id();
      u32x4 fa;
      u32 fb[2];
      f32 fd[4];
      const auto at = [](const auto& m, Place p) -> u32 { return m[p.row][p.col].bits; };
      for (u32 r = 0; r < 4; ++r)
        fa[static_cast<int>(r)] = at(a, a_place(lane, 2 * r)) | at(a, a_place(lane, 2 * r + 1))
                                                                    << 16;
      for (u32 r = 0; r < 2; ++r)
        fb[r] = at(b, b_place(lane, 2 * r)) | at(b, b_place(lane, 2 * r + 1)) << 16;
      for (u32 i = 0; i < 4; ++i) fd[i] = c[c_place(lane, i).row][c_place(lane, i).col];
      isa::mma_m16n8k16<T>(fd, fa, fb[0], fb[1]);
      for (u32 i = 0; i < 4; ++i) d[c_place(lane, i).row][c_place(lane, i).col] = fd[i];
    };
    run_threads(32, 0, body, static_cast<std::uint64_t>(round));
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        f32 sum = c[i][j];
        for (int k = 0; k < 16; ++k) sum += isa::to_float(a[i][k]) * isa::to_float(b[k][j]);
        ASSERT_EQ(d[i][j], sum) << i << ", " << j;
      }
    }
  }
}

// NaN and infinity go where they belong and nowhere else.
TYPED_TEST(MmaTest, SpecialValues) {
  using T = TypeParam;
  f32 d[16][8];
  const auto body = [&] {
    const u32 lane = isa::lane_id();
    u32x4 a = {};
    if (lane == 4 * 3) a[0] = isa::pack<T>(core::infinity(), 0);       // row 3, column 0
    if (lane == 4 * 5 + 1) a[3] = isa::pack<T>(0, -core::infinity());  // row 13, column 11
    const u32 one = isa::pack<T>(1, 1);
    f32 fd[4] = {};
    isa::mma_m16n8k16<T>(fd, a, one, lane / 4 == 7 ? 0 : one);
    for (u32 i = 0; i < 4; ++i) d[c_place(lane, i).row][c_place(lane, i).col] = fd[i];
  };
  run_threads(32, 0, body);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      if (i == 3) {
        EXPECT_EQ(d[i][j], core::infinity());
      } else if (i == 13 && j == 7) {
        EXPECT_NE(d[i][j], d[i][j]);  // 0 times infinity
      } else {
        EXPECT_EQ(d[i][j], i == 13 ? -core::infinity() : 0.0f);
      }
    }
  }
}

// PTX ISA, ldmatrix: thread 8 m + r gives the address of row r of matrix m; of each matrix, thread
// l receives elements 2 (l % 4) and the next of row l / 4, with .trans those of column l / 4.
TEST(Ldmatrix, Layout) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    u16 matrix[4][8][8];
    u32 rows[32];  // in units of 16 bytes
    for (u32 i = 0; i < 32; ++i) rows[i] = i;
    std::shuffle(rows, rows + 32, random);
    for (auto& m : matrix)
      for (auto& row : m)
        for (u16& x : row) x = static_cast<u16>(random());
    u32x4 plain[32], trans[32];
    const auto body = [&] {
      const u32 lane = isa::lane_id();
      const u32 address = isa::shared_base() + 16 * rows[lane];
      Vec<u16, 8> row;
      for (int i = 0; i < 8; ++i) row[i] = matrix[lane / 8][lane % 8][i];
      isa::st_shared(address, row);
      isa::warp_sync();
      plain[lane] = isa::ldmatrix_x4(address);
      trans[lane] = isa::ldmatrix_x4_trans(address);
    };
    run_threads(32, 512, body, static_cast<std::uint64_t>(round));
    for (u32 l = 0; l < 32; ++l) {
      for (int m = 0; m < 4; ++m) {
        const u32 across = l / 4, along = 2 * (l % 4);
        EXPECT_EQ(plain[l][m] & 0xFFFF, matrix[m][across][along]);
        EXPECT_EQ(plain[l][m] >> 16, matrix[m][across][along + 1]);
        EXPECT_EQ(trans[l][m] & 0xFFFF, matrix[m][along][across]);
        EXPECT_EQ(trans[l][m] >> 16, matrix[m][along + 1][across]);
      }
    }
  }
}

TEST(Shuffle, ValuesOfOtherLanes) {
  u32 seen[6][32], from[32], index[64];
  f32 moved[32];
  constexpr u32 kXor[] = {1, 2, 4, 8, 16, 31};
  const auto body = [&] {
    const u32 t = isa::thread_id(), lane = isa::lane_id();
    index[t] = isa::warp_id();
    if (t >= 32) return;
    for (int i = 0; i < 6; ++i) seen[i][lane] = isa::shfl_xor(1000 + lane, kXor[i]);
    from[lane] = isa::shfl(1000 + lane, (5 * lane + 3) % 32);
    moved[lane] = isa::shfl(static_cast<f32>(lane) + 0.5f, 9);
  };
  run_threads(64, 0, body);
  for (u32 l = 0; l < 32; ++l) {
    for (int i = 0; i < 6; ++i) EXPECT_EQ(seen[i][l], 1000 + (l ^ kXor[i]));
    EXPECT_EQ(from[l], 1000 + (5 * l + 3) % 32);
    EXPECT_EQ(moved[l], 9.5f);
    EXPECT_EQ(index[l], 0u);
    EXPECT_EQ(index[32 + l], 1u);
  }
}

TEST(Vote, Votes) {
  u32 bits[32];
  bool any[32], none[32], all[32], not_all[32];
  const auto body = [&] {
    const u32 l = isa::lane_id();
    bits[l] = isa::ballot(l % 3 == 0);
    any[l] = isa::vote_any(l == 31);
    none[l] = isa::vote_any(false);
    all[l] = isa::vote_all(true);
    not_all[l] = isa::vote_all(l != 0);
  };
  run_threads(32, 0, body);
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(bits[l], 0x49249249u);
    EXPECT_TRUE(any[l]);
    EXPECT_FALSE(none[l]);
    EXPECT_TRUE(all[l]);
    EXPECT_FALSE(not_all[l]);
  }
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
