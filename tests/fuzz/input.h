// The bytes of one fuzz input, read as decisions. Past its end everything is zero.
#ifndef STROBE_TESTS_FUZZ_INPUT_H_
#define STROBE_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace strobe::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  template <class T>
  T take() {
    T value{};
    copy(&value, sizeof(value));
    return value;
  }
  void copy(void* to, std::size_t bytes) {
    const std::size_t count = std::min(bytes, size_ - at_);
    if (count > 0) std::memcpy(to, data_ + at_, count);
    at_ += count;
  }
  // In [0, count).
  int below(int count) { return take<std::uint8_t>() % count; }
  bool one_in(int count) { return below(count) == count - 1; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// A property that must hold whatever the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: violated: %s\n", what);
  std::abort();
}

}  // namespace strobe::fuzz

#endif  // STROBE_TESTS_FUZZ_INPUT_H_
