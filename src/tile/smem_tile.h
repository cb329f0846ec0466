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

  u32 base;

  // Shared address of a 16-byte chunk.
  STROBE_DEVICE u32 at(u32 row, u32 chunk) const {
    const u32 swizzled = chunk ^ ((row >> (3 - kZ)) & ((1u << kZ) - 1));
    return base + row * kRowBytes + swizzled * 16;
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_SMEM_TILE_H_
