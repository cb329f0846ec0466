#include "reference/dropout.h"

#include <cmath>

namespace strobe::reference {

std::array<std::uint32_t, 4> philox4x32(int rounds, std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < rounds; ++round) {
    if (round > 0) {  // Weyl sequence of the key: golden ratio, sqrt(3) - 1
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    const std::uint64_t left = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t right = std::uint64_t{0xCD9E8D57} * counter[2];
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    counter = {high(right) ^ counter[1] ^ key[0], low(right), high(left) ^ counter[3] ^ key[1],
               low(left)};
  }
  return counter;
}

Dropout::Dropout(const strobe_problem& problem, const strobe_run_args& args, std::int64_t sequence,
                 std::int64_t head)
    : p_(problem.dropout_p) {
  const std::uint64_t seed = args.dropout_state ? args.dropout_state[0] : args.dropout_seed;
  const std::uint64_t offset = args.dropout_state ? args.dropout_state[1] : args.dropout_offset;
  const std::uint64_t batch_head = static_cast<std::uint64_t>(sequence * problem.heads + head);
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  stream_ = philox4x32(10, {low(batch_head), low(batch_head >> 32), low(offset), low(offset >> 32)},
                       {low(seed), low(seed >> 32)});
}

bool Dropout::kept(std::int64_t i, std::int64_t j) const {
  const std::array<std::uint32_t, 4> bits = philox4x32(
      7, {static_cast<std::uint32_t>(j / 8), static_cast<std::uint32_t>(i), stream_[2], stream_[3]},
      {stream_[0], stream_[1]});
  const int element = static_cast<int>(j % 8);
  const std::uint32_t word = bits[element / 2];
  const std::uint32_t draw = element % 2 == 0 ? word & 0xFFFF : word >> 16;
  return draw >= std::round(65536 * p_);
}

double Dropout::factor(std::int64_t i, std::int64_t j) const {
  if (p_ == 0) return 1;
  return kept(i, j) ? 1 / (1 - p_) : 0;
}

}  // namespace strobe::reference
