// Moving tiles between device memory and shared memory.
#ifndef STROBE_SRC_TILE_COPY_H_
#define STROBE_SRC_TILE_COPY_H_

#include "isa/isa.h"
#include "tile/smem_tile.h"

namespace strobe::STROBE_TARGET {

// One 16-byte chunk of a row of `dim` elements from `chunk` on; zeros beyond. Rows that no cp.async
// can take (odd lengths or addresses) go element by element.
template <class Tile, class T>
STROBE_DEVICE void copy_chunk(const Tile& tile, u32 row, u32 chunk, const T* from, bool valid,
                              int dim, bool vector, Here here = {}) {
  constexpr int kPerChunk = Tile::kPerChunk;
  const int left = dim - static_cast<int>(chunk) * kPerChunk;
  if (vector) {
    valid = valid && left > 0;
    isa::cp_async_16(tile.at(row, chunk), valid ? from + chunk * kPerChunk : from, valid, here);
    return;
  }
  Vec<T, kPerChunk> v;
  STROBE_UNROLL
  for (int x = 0; x < kPerChunk; ++x) {
    v[x] = valid && x < left ? isa::ld_global(from + chunk * kPerChunk + x, here) : T{};
  }
  isa::st_shared(tile.at(row, chunk), v, here);
}

// A whole tile by all kThreads threads, whose rows lie anywhere: address(row) -> first element of
// the row, or null where the tile has zeros.
template <int kThreads, class Tile, class Address>
STROBE_DEVICE void gather_tile(const Tile& tile, Address address, int dim, bool vector,
                               Here here = {}) {
  constexpr int kTotal = Tile::kRows * Tile::kChunks;
  const u32 thread = isa::thread_id();
  STROBE_NO_UNROLL
  for (u32 c = thread; c < kTotal; c += kThreads) {
    const u32 row = c / Tile::kChunks, chunk = c % Tile::kChunks;
    const auto* from = address(static_cast<int>(row));
    copy_chunk(tile, row, chunk, from, from != nullptr, dim, vector, here);
  }
}

// Copies of blocks of consecutive rows, one thread's part, walking over a tensor. A thread takes
// one column of chunks, in passes whose rows leave the swizzle alone, so that all its addresses
// differ by constants.
template <int kThreads, class Tile, class T>
struct BlockLoader {
  // Rows of a pass: a multiple of the swizzle's period 8, or 4 where threads are few.
  static constexpr int kWhole = kThreads / (Tile::kChunks * 8) * 8;
  static constexpr int kPerPass = kWhole > 0 ? kWhole : kThreads / (Tile::kChunks * 4) * 4;
  static constexpr int kPasses = Tile::kRows / kPerPass;
  static_assert(kPerPass > 0 && Tile::kRows % kPerPass == 0);

  const T* cursor;  // this thread's chunk of the block to load next
  i64 row_stride;   // in elements
  i64 next;         // from one block to the next to be loaded
  int dim;          // elements of a row; zeros from there on

  STROBE_DEVICE static int row() { return static_cast<int>(isa::thread_id()) / Tile::kChunks; }
  STROBE_DEVICE static int chunk() { return static_cast<int>(isa::thread_id()) % Tile::kChunks; }
  STROBE_DEVICE static bool idle() {
    return kThreads != kPerPass * Tile::kChunks && row() >= kPerPass;
  }

  // first: element 0 of the row at which the first block starts. blocks: 1 to walk up, -1 down.
  STROBE_DEVICE BlockLoader(const T* first, i64 stride, int head_dim, int blocks)
      : cursor(first + row() * stride + chunk() * Tile::kPerChunk),
        row_stride(stride),
        next(blocks * Tile::kRows * stride),
        dim(head_dim) {}

  // The block whose row r is valid iff begin <= r < end; the others become zeros. Then moves on.
  STROBE_DEVICE void load(const Tile& tile, int begin, int end, Here here = {}) {
    const u32 even = tile.at(row(), chunk()), odd = tile.at(row() + kPerPass, chunk());
    const u32 r = static_cast<u32>(row() - begin), rows = static_cast<u32>(end - begin);
    const bool inside = chunk() * Tile::kPerChunk < dim && !idle();
    const T* from = cursor;
    STROBE_UNROLL
    for (int x = 0; x < kPasses; ++x) {
      if (kThreads == kPerPass * Tile::kChunks || !idle()) {
        isa::cp_async_16((x % 2 ? odd : even) + x / 2 * 2 * kPerPass * Tile::kRowBytes, from,
                         inside && r + x * kPerPass < rows, here);
      }
      from += kPerPass * row_stride;
    }
    cursor += next;
  }

  // The same for rows that no cp.async can take.
  STROBE_DEVICE void load_scalar(const Tile& tile, int begin, int end, Here here = {}) {
    STROBE_NO_UNROLL
    for (int r = row(); r < Tile::kRows && !idle(); r += kPerPass) {
      copy_chunk(tile, r, chunk(), cursor + (r - row()) * row_stride - chunk() * Tile::kPerChunk,
                 r >= begin && r < end, dim, false, here);
    }
    cursor += next;
  }
};

// Eight elements from element 8 * chunk of a row of `dim` on; what lies beyond is left alone.
template <class T>
STROBE_DEVICE void store_chunk(T* row, u32 chunk, const Vec<T, 8>& v, int dim, bool vector,
                               Here here = {}) {
  const int left = dim - static_cast<int>(chunk) * 8;
  if (left <= 0) return;
  if (vector) {
    isa::st_global(reinterpret_cast<Vec<T, 8>*>(row + chunk * 8), v, here);
    return;
  }
  STROBE_UNROLL
  for (int x = 0; x < 8; ++x) {
    if (x < left) isa::st_global(row + chunk * 8 + x, v[x], here);
  }
}

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_COPY_H_
