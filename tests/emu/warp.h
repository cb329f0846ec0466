// Code that the threads of one CTA run, for tests of operations: it may capture the test's own
// arrays, which are no device memory.
#ifndef STROBE_TESTS_EMU_WARP_H_
#define STROBE_TESTS_EMU_WARP_H_

#include <gtest/gtest.h>

#include <functional>

#include "emu/machine.h"
#include "isa/isa.h"

namespace strobe::STROBE_TARGET {

inline emu::Report run_threads(u32 threads, u32 shared_bytes, const std::function<void()>& body,
                               std::uint64_t seed = 1) {
  emu::Memory memory;
  emu::Report report;
  emu::Launch launch = {"test", 1, threads, shared_bytes, false, nullptr, &body};
  launch.entry = [](const void* params) { (*static_cast<const std::function<void()>*>(params))(); };
  launch.seed = seed;
  emu::run(launch, memory, report);
  EXPECT_TRUE(report.clean()) << report.text();
  return report;
}

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_TESTS_EMU_WARP_H_
