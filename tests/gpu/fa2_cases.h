// How the tests of FlashAttention-2 run a case: on the emulator, each with another landing and
// order.
#ifndef STROBE_TESTS_GPU_FA2_CASES_H_
#define STROBE_TESTS_GPU_FA2_CASES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "harness/harness.h"

namespace strobe::harness {

inline constexpr const char* kLandings[] = {"immediate", "late", "random"};
inline const bool kSlow = std::getenv("STROBE_SLOW") != nullptr;

inline PlanOptions options(std::uint64_t seed, const std::string& more = "") {
  PlanOptions o;
  o.device = Device::emulator();
  o.kernel = "fa2";
  o.overrides =
      "landing=" + std::string(kLandings[seed % 3]) + ",seed=" + std::to_string(seed) + more;
  o.threads = 1;
  return o;
}

inline void expect_passes(const Case& c, const std::string& more = "") {
  const CheckReport report = check_case(c, options(c.seed, more));
  EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
}

}  // namespace strobe::harness

#endif  // STROBE_TESTS_GPU_FA2_CASES_H_
