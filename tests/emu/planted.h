// Kernels for testing the emulator: each in a correct and in a broken form that differ in one
// place.
#ifndef STROBE_TESTS_EMU_PLANTED_H_
#define STROBE_TESTS_EMU_PLANTED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "emu/machine.h"
#include "isa/isa.h"

namespace strobe::STROBE_TARGET::planted {

// What every test kernel gets. Tensors have unregistered bytes around them, input and output alone
// lie side by side.
struct Args {
  const u32* in;
  u32* out;
  u32* state;
  f32* sum;
};

struct Shape {
  u32 grid = 1, threads = 64, shared = 1024;
  bool together = false;
  u32 in = 256, out = 256, state = 16, sum = 16;  // words
  int host_threads = 1;
  bool go_on = false;
};

struct Result {
  emu::Report report;
  std::vector<u32> out, state;
  std::vector<f32> sum;
};

// in[i] = 100 + i; state and sum are 0; out is poison.
Result run(void (*kernel)(const Args&), const Shape& shape, std::uint64_t seed,
           emu::Landing landing);

constexpr emu::Landing kLandings[] = {emu::Landing::kImmediate, emu::Landing::kLate,
                                      emu::Landing::kRandom};
constexpr std::uint64_t kSeeds = 20;

// Lines of a kernel that its report must name: AT(n) stands on the line of the operation.
inline int marks[4];
#define AT(n) (strobe::STROBE_TARGET::planted::marks[n] = __LINE__)

struct Expected {
  emu::HazardKind kind;
  std::initializer_list<int> lines;          // of marks: all are named
  std::initializer_list<const char*> texts;  // all occur
};

// The correct kernel is clean and the broken one reported, in every landing mode and for all seeds.
void expect_caught(void (*broken)(const Args&), void (*correct)(const Args&), const Shape& shape,
                   const Expected& expected);
void expect_clean(void (*kernel)(const Args&), const Shape& shape);
// Of one report.
void expect_report(const emu::Report& report, const Expected& expected, const char* file);

}  // namespace strobe::STROBE_TARGET::planted

// TEST of kernel<true> (broken) against kernel<false>.
#define EXPECT_CAUGHT(kernel, shape, ...) \
  planted::expect_caught(kernel<true>, kernel<false>, shape, planted::Expected{__VA_ARGS__})

#endif  // STROBE_TESTS_EMU_PLANTED_H_
