#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <string>

#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

class DefaultThreads : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("STROBE_NUM_THREADS")) saved_ = value;
    unsetenv("STROBE_NUM_THREADS");
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask_), &mask_), 0);
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof(mask_), &mask_);
    if (!saved_.empty()) setenv("STROBE_NUM_THREADS", saved_.c_str(), 1);
  }
  std::string saved_;
  cpu_set_t mask_;
};

TEST_F(DefaultThreads, AtMostTheCpusOfTheAffinityMask) {
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), CPU_COUNT(&mask_));
}

TEST_F(DefaultThreads, FollowsTheAffinityMask) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &mask_)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(default_threads(), 1);
}

TEST_F(DefaultThreads, EnvironmentVariableOverrules) {
  setenv("STROBE_NUM_THREADS", "37", 1);
  EXPECT_EQ(default_threads(), 37);
}

TEST_F(DefaultThreads, NonsenseInTheEnvironmentIsIgnored) {
  const int automatic = default_threads();
  for (const char* value : {"", "0", "-3", "four", "4x", "99999999999999999999x"}) {
    setenv("STROBE_NUM_THREADS", value, 1);
    EXPECT_EQ(default_threads(), automatic) << '"' << value << '"';
  }
}

TEST_F(DefaultThreads, HugeNumbersAreCut) {
  setenv("STROBE_NUM_THREADS", "99999999999999999999", 1);
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), 4096);
}

}  // namespace
}  // namespace strobe::cpu
