// A tile in shared memory, rows of 16-byte chunks, swizzled so that eight rows' chunks of the same
// column lie in different banks: what ldmatrix reads, and what cp.async writes, without conflicts.
#ifndef STROBE_SRC_TILE_SMEM_TILE_H_
#define STROBE_SRC_TILE_SMEM_TILE_H_

#include "isa/isa.h"

namespace strobe::STROBE_TARGET {

template <class T, int kRows_, int kCols_>
struct SmemTile {
  static constexpr int kRows = kRows_, kCols = kCols_;
  static constexpr int kPerChunk = 16 / sizeof(T);
  static constexpr int kChunks = kCols / kPerChunk;  // per row
  static constexpr int kRowBytes = kChunks * 16;
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kCols % kPerChunk == 0);
  // A row is 2^z odd chunks long: its low z chunk bits are swapped by as many bits of the row.
  static constexpr int kZ = kChunks % 8 == 0 ? 3 : kChunks % 4 == 0 ? 2 : kChunks % 2 == 0 ? 1 : 0;

  static constexpr u32 kSwizzled = (1u << kZ) - 1;  // chunk bits that the row changes

  u32 base;  // a multiple of 128

  // Shared address of a 16-byte chunk.
  STROBE_DEVICE u32 at(u32 row, u32 chunk) const {
    return base + row * kRowBytes + (chunk ^ ((row >> (3 - kZ)) & kSwizzled)) * 16;
  }
};

// One lane's place in a tile, (row, 0) or (row, 1). Places `rows` below, a multiple of 8, and
// `chunks` to the right, an even number, cost one exclusive or: neither moves the swizzle.
template <class Tile>
struct TilePlace {
  u32 address;

  STROBE_DEVICE TilePlace(const Tile& tile, u32 row, u32 chunk) : address(tile.at(row, chunk)) {}
  STROBE_DEVICE u32 at(int rows, int chunks) const {
    constexpr int kLow = Tile::kSwizzled;
    return (address ^ static_cast<u32>((chunks & kLow) * 16)) +
           static_cast<u32>(rows * Tile::kRowBytes + (chunks & ~kLow) * 16);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_SMEM_TILE_H_
