// The order in which tiles are worked on.
//
// Longest first (FlashAttention-4, section on scheduling): under a causal mask the last query tile
// of a sequence sees the most keys, so tiles start from the end, and the short ones fill the gaps.
// All heads of a section, as many as have K and V in the level-2 cache together, do the same tile
// at once; sections follow one another.
#ifndef STROBE_SRC_CORE_SCHEDULER_H_
#define STROBE_SRC_CORE_SCHEDULER_H_

#include "core/portable.h"

namespace strobe::core {

struct TileIndex {
  u32 block;       // query (or key) tile
  u32 head_batch;  // batch * heads + head
};

struct LongestFirst {
  u32 blocks;  // tiles per head
  u32 head_batches;
  u32 section;  // heads that share the cache, >= 1

  STROBE_HOST_DEVICE constexpr TileIndex operator()(u32 linear) const {
    const u32 per_section = section * blocks;
    const u32 s = section >= head_batches ? 0 : linear / per_section;
    const u32 rest = linear - s * per_section;
    const u32 left = head_batches - s * section;
    const u32 width = left < section ? left : section;
    const u32 turn = rest / width;
    return {blocks - 1 - turn, s * section + (rest - turn * width)};
  }
};

// Heads of one section: a power of two of them fits `cache_bytes`.
constexpr u32 heads_per_section(u64 head_bytes, u64 cache_bytes) {
  u32 heads = 1;
  while (heads < 4096 && head_bytes * heads * 2 <= cache_bytes) heads *= 2;
  return heads;
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_SCHEDULER_H_
