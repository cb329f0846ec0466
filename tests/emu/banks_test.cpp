// Bank conflicts: known patterns, and the swizzle of SmemTile, which must have none.
#include "tile/fragment.h"
#include "tile/smem_tile.h"
#include "warp.h"

namespace strobe::STROBE_TARGET {
namespace {

struct Passes {
  std::uint64_t wavefronts, conflicts;
  bool operator==(const Passes&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Passes& p) {
  return out << p.wavefronts << " wavefronts, " << p.conflicts << " conflicts";
}

// Of stores of T by one warp, lane l at byte address(l).
template <class T>
Passes stores(u32 (*address)(u32)) {
  const auto report = run_threads(
      32, 8192, [&] { isa::st_shared(isa::shared_base() + address(isa::lane_id()), T{}); });
  return {report.counters.shared_wavefronts, report.counters.bank_conflicts};
}

TEST(Banks, KnownPatterns) {
  EXPECT_EQ(stores<u32>([](u32 l) { return 4 * l; }), (Passes{1, 0}));
  EXPECT_EQ(stores<u32>([](u32 l) { return 8 * l; }), (Passes{2, 1}));
  EXPECT_EQ(stores<u32>([](u32 l) { return 4 * (33 * l); }), (Passes{1, 0}));
  EXPECT_EQ(stores<u32>([](u32 l) { return 128 * l; }), (Passes{32, 31}));
  EXPECT_EQ(stores<u32x2>([](u32 l) { return 8 * l; }), (Passes{2, 0}));
  EXPECT_EQ(stores<u32x2>([](u32 l) { return 128 * l; }), (Passes{32, 30}));
  EXPECT_EQ(stores<u32x4>([](u32 l) { return 16 * l; }), (Passes{4, 0}));
  EXPECT_EQ(stores<u32x4>([](u32 l) { return 32 * l; }), (Passes{8, 4}));
  EXPECT_EQ(stores<u16>([](u32 l) { return 2 * l; }), (Passes{1, 0}));
}

TEST(Banks, LanesThatReadOneWordShareIt) {
  const auto report = run_threads(32, 128, [] {
    const u32 l = isa::lane_id();
    isa::st_shared(isa::shared_base() + 4 * l, l);
    isa::warp_sync();
    isa::ld_shared<u32>(isa::shared_base() + 4 * (l / 8));
  });
  EXPECT_EQ(report.counters.shared_wavefronts, 2u);
  EXPECT_EQ(report.counters.bank_conflicts, 0u);
}

// Lanes leave the loop at different times and skip lines: what they still do together is matched.
TEST(Banks, DivergentLoop) {
  const auto report = run_threads(32, 8192, [] {
    const u32 l = isa::lane_id();
    for (u32 i = 0; i <= l / 8; ++i) {
      if (l % 2 == 0) isa::st_shared(isa::shared_base() + 512 * i + 4 * l, i);
      isa::st_shared(isa::shared_base() + 512 * i + 256 + 4 * l, i);
    }
  });
  EXPECT_EQ(report.counters.shared_wavefronts, 8u);
  EXPECT_EQ(report.counters.bank_conflicts, 0u);
}

TEST(Banks, LdmatrixOfUnswizzledRows) {
  const auto report = run_threads(32, 4096, [] {
    const u32 address = isa::shared_base() + 128 * isa::lane_id();
    isa::st_shared(address, u32x4{});
    isa::warp_sync();
    isa::ldmatrix_x4(address);
  });
  // Stores by quarter warps and rows of a matrix: eight each, all in the same four banks.
  EXPECT_EQ(report.counters.shared_wavefronts, 4u * 8 + 4 * 8);
  EXPECT_EQ(report.counters.bank_conflicts, 4u * 7 + 4 * 7);
}

template <int kCols>
void expect_no_conflicts() {
  constexpr int kRows = 64;
  using Tile = SmemTile<bf16, kRows, kCols>;
  std::uint64_t reads = 0;
  const auto report = run_threads(32, Tile::kBytes, [&] {
    const Tile tile = {isa::shared_base()};
    const u32 lane = isa::lane_id();
    // As copy_tile() writes it.
    for (u32 c = lane; c < Tile::kRows * Tile::kChunks; c += 32) {
      isa::st_shared(tile.at(c / Tile::kChunks, c % Tile::kChunks), u32x4{});
    }
    isa::warp_sync();
    u32 n = 0;
    for (int row = 0; row < kRows; row += 16) {
      for (int k = 0; k < kCols / 16; ++k) {
        load_a(tile, row, k, lane);
        load_b(tile, row, k, lane);
        load_a_transposed(tile, 16 * k, row / 16, lane);
        load_b_transposed(tile, 16 * k, row / 16, lane);
        n += 4;
      }
    }
    if (lane == 0) reads = n;
  });
  EXPECT_EQ(report.counters.bank_conflicts, 0u) << kCols << " columns";
  EXPECT_EQ(report.counters.shared_wavefronts, 4 * reads + Tile::kBytes / 128) << kCols;
}

TEST(Banks, SmemTileHasNoConflicts) {
  expect_no_conflicts<16>();
  expect_no_conflicts<32>();
  expect_no_conflicts<48>();
  expect_no_conflicts<64>();
  expect_no_conflicts<80>();
  expect_no_conflicts<96>();
  expect_no_conflicts<112>();
  expect_no_conflicts<128>();
  expect_no_conflicts<160>();
  expect_no_conflicts<192>();
  expect_no_conflicts<224>();
  expect_no_conflicts<256>();
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
