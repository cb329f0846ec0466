// Loops before and after fork(). Each child has an alarm, so that a hang fails the test.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cpu/parallel.h"
#include "loop_checks.h"

#if defined(__SANITIZE_THREAD__)
#define STROBE_TSAN 1
#else
#define STROBE_TSAN 0
#endif

namespace strobe::cpu {
namespace {

using test::kOwnThreads;

bool sums_up(int threads) {
  std::atomic<std::int64_t> sum = 0;
  parallel_for(kOwnThreads, threads, 100, [&](std::int64_t index, int) { sum += index; });
  return sum == 4950;
}

// Runs `body` in a child; true if it returned true in time.
template <class Body>
bool in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Fork : public testing::Test {
 protected:
  void SetUp() override {
    if (STROBE_TSAN) GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked child";
    if (std::strcmp(parallel_name(), "pool") != 0) {
      GTEST_SKIP() << parallel_name() << " does not survive fork()";
    }
  }
};

TEST_F(Fork, ChildOfAParentThatUsedThePoolHasThreadsOfItsOwn) {
  ASSERT_TRUE(test::meets_another_thread(kOwnThreads, 3));
  EXPECT_TRUE(in_child([] { return test::meets_another_thread(kOwnThreads, 3) && sums_up(3); }));
  EXPECT_TRUE(test::meets_another_thread(kOwnThreads, 3));
}

TEST_F(Fork, ParentUsesThePoolAfterItsChildDid) {
  EXPECT_TRUE(in_child([] { return test::meets_another_thread(kOwnThreads, 2); }));
  EXPECT_TRUE(test::meets_another_thread(kOwnThreads, 2));
}

TEST_F(Fork, GrandchildToo) {
  ASSERT_TRUE(sums_up(2));
  EXPECT_TRUE(in_child([] {
    return sums_up(2) && in_child([] { return test::meets_another_thread(kOwnThreads, 2); });
  }));
}

TEST_F(Fork, WhileOtherThreadsAreInsideLoops) {
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  auto caller = [&] {
    for (int threads = 2; !stop; threads = 2 + threads % 4) wrong += !sums_up(threads);
  };
  std::thread first(caller), second(caller);
  for (int round = 0; round < 40; ++round) {
    EXPECT_TRUE(in_child([] { return test::meets_another_thread(kOwnThreads, 2) && sums_up(4); }))
        << "round " << round;
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Fork, FromWithinABody) {
  std::atomic<int> failures = 0;
  parallel_for(kOwnThreads, 3, 12,
               [&](std::int64_t, int) { failures += !in_child([] { return true; }); });
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(sums_up(3));
}

TEST_F(Fork, ChildThatReturnsFromTheBodyItWasForkedIn) {
  const pid_t parent = getpid();
  std::atomic<pid_t> child = -1;
  parallel_for(kOwnThreads, 2, 1000, [&](std::int64_t index, int worker) {
    if (index < 10 || worker != 0 || child != -1 || getpid() != parent) return;
    child = fork();
    if (child == 0) alarm(30);
  });
  if (getpid() != parent) _exit(test::meets_another_thread(kOwnThreads, 2) ? 0 : 1);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Fork, ChildExitsNormally) {
  ASSERT_TRUE(sums_up(2));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    std::exit(sums_up(2) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace strobe::cpu
