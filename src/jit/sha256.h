// SHA-256 (FIPS 180-4): names cache entries by all that went into them, and detects damage.
#ifndef STROBE_SRC_JIT_SHA256_H_
#define STROBE_SRC_JIT_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strobe::jit {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  void add(const void* data, std::size_t bytes);
  // A field: its length, then its bytes, so that neighbours cannot run together.
  void add_field(std::string_view text);
  Digest finish();  // once

 private:
  void block(const std::uint8_t* data);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t bytes_ = 0;
};

std::string hex(const Digest& digest);

}  // namespace strobe::jit

#endif  // STROBE_SRC_JIT_SHA256_H_
