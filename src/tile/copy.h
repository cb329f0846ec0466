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

// A whole tile by all kThreads threads. address(row) -> first element of the row, or null where
// the tile has zeros.
template <int kThreads, class Tile, class Address>
STROBE_DEVICE void copy_tile(const Tile& tile, Address address, int dim, bool vector,
                             Here here = {}) {
  constexpr int kTotal = Tile::kRows * Tile::kChunks;
  const u32 thread = isa::thread_id();
  STROBE_UNROLL
  for (int x = 0; x < ceil_div(kTotal, kThreads); ++x) {
    const u32 c = thread + static_cast<u32>(x * kThreads);
    if (kTotal % kThreads != 0 && c >= kTotal) break;
    const u32 row = c / Tile::kChunks, chunk = c % Tile::kChunks;
    const auto* from = address(static_cast<int>(row));
    copy_chunk(tile, row, chunk, from, from != nullptr, dim, vector, here);
  }
}

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
