// The reference in each dtype against itself in float64: whatever random_case() draws must plan,
// run and pass.
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/harness.h"

namespace strobe::harness {
namespace {

TEST(RandomCases, ReferencePassesItsOwnCheck) {
  const std::uint64_t count = std::getenv("STROBE_SLOW") ? 2000 : 100;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const CheckReport report = check_case(random_case(seed), {.kernel = "reference"});
    EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
  }
}

}  // namespace
}  // namespace strobe::harness
