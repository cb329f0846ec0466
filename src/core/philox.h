// Philox4x32 and the dropout keep rule. Shared by every kernel, host and device; the reference has
// its own.
//
// Whether element (b, h, i, j) of P is kept depends on seed, offset and those four numbers alone:
//   stream = philox<10>(key = seed, counter = (bh.lo, bh.hi, offset.lo, offset.hi)), bh = b * heads
//   + h bits   = philox<7>(key = stream[0..1], counter = (j / 8, i, stream[2], stream[3])) draw   =
//   16 bits of `bits`: element e = j % 8 is the low (e even) or high half of word e / 2 kept  iff
//   draw >= round(p * 65536)
// b is the sequence, h the query head, i and j count from the start of the sequence.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#ifndef STROBE_SRC_CORE_PHILOX_H_
#define STROBE_SRC_CORE_PHILOX_H_

#include "core/portable.h"

namespace strobe::core {

constexpr u32 kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
constexpr u32 kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;
constexpr int kDropoutRounds = 7;  // the fewest that pass BigCrush
constexpr int kStreamRounds = 10;

struct PhiloxBlock {
  u32 word[4];
};

template <int kRounds>
STROBE_HOST_DEVICE constexpr PhiloxBlock philox(u32 key0, u32 key1, PhiloxBlock c) {
  for (int round = 0; round < kRounds; ++round) {
    const u64 p0 = u64{kPhiloxM0} * c.word[0];
    const u64 p1 = u64{kPhiloxM1} * c.word[2];
    c = {{static_cast<u32>(p1 >> 32) ^ c.word[1] ^ key0, static_cast<u32>(p1),
          static_cast<u32>(p0 >> 32) ^ c.word[3] ^ key1, static_cast<u32>(p0)}};
    key0 += kPhiloxW0;
    key1 += kPhiloxW1;
  }
  return c;
}

// The random stream of one (sequence, head): key in words 0 and 1, counter tail in words 2 and 3.
STROBE_HOST_DEVICE constexpr PhiloxBlock dropout_stream(u64 seed, u64 offset, u64 batch_head) {
  return philox<kStreamRounds>(static_cast<u32>(seed), static_cast<u32>(seed >> 32),
                               {{static_cast<u32>(batch_head), static_cast<u32>(batch_head >> 32),
                                 static_cast<u32>(offset), static_cast<u32>(offset >> 32)}});
}

// Bits of the eight elements (i, 8 * group ... 8 * group + 7).
STROBE_HOST_DEVICE constexpr PhiloxBlock dropout_bits(const PhiloxBlock& stream, u32 i, u32 group) {
  return philox<kDropoutRounds>(stream.word[0], stream.word[1],
                                {{group, i, stream.word[2], stream.word[3]}});
}

STROBE_HOST_DEVICE constexpr u32 dropout_draw(const PhiloxBlock& bits, u32 element) {
  return (bits.word[element / 2] >> (16 * (element % 2))) & 0xFFFFu;
}

// An element is kept iff its draw is at least this. p in [0, 1).
STROBE_HOST_DEVICE constexpr u32 dropout_threshold(double p) {
  return static_cast<u32>(p * 65536.0 + 0.5);
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_PHILOX_H_
