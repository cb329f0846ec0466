// What every loop promises: each index once, worker numbers, order, nesting, concurrent callers.
#include "cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocations.h"
#include "loop_checks.h"

namespace strobe::cpu {
namespace {

using test::check_loop;
using test::check_order;
using test::kOwnThreads;

TEST(Parallel, RunsEveryIndexOnce) {
  for (int threads : {-1, 0, 1, 2, 3, 8}) {
    for (std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      SCOPED_TRACE("threads " + std::to_string(threads) + ", count " + std::to_string(count));
      check_loop(kOwnThreads, threads, count);
    }
  }
}

TEST(Parallel, CutsAbsurdNumbersOfThreads) { check_loop(kOwnThreads, 1 << 20, 4); }

TEST(Parallel, NameSaysWhatWasBuilt) {
  const std::string name = parallel_name();
  EXPECT_TRUE(name == "pool" || name == "openmp") << name;
}

TEST(Parallel, UsesSeveralThreads) { EXPECT_TRUE(test::meets_another_thread(kOwnThreads, 2)); }

TEST(Parallel, CallerIsWorkerZero) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> wrong = 0;
  parallel_for(kOwnThreads, 3, 300, [&](std::int64_t, int worker) {
    wrong += (worker == 0) != (std::this_thread::get_id() == caller);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, TasksMayWaitForLowerIndices) {
  for (int threads : {1, 2, 3, 5}) check_order(kOwnThreads, threads, 200);
}

TEST(Parallel, NestedLoopsRunOnTheirCallerAlone) {
  std::atomic<std::int64_t> sum = 0;
  std::atomic<int> wrong = 0;
  for (int threads : {1, 2, 4}) {
    sum = 0;
    parallel_for(kOwnThreads, threads, 20, [&](std::int64_t outer, int) {
      const auto caller = std::this_thread::get_id();
      std::int64_t expected = 0;
      parallel_for(kOwnThreads, 4, 30, [&](std::int64_t inner, int worker) {
        wrong += worker != 0 || std::this_thread::get_id() != caller || inner != expected++;
        sum += 30 * outer + inner;
      });
    });
    EXPECT_EQ(sum, 600 * 599 / 2);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, LoopAfterNestedLoopsIsParallelAgain) {
  parallel_for(kOwnThreads, 2, 4, [](std::int64_t, int) {
    parallel_for(kOwnThreads, 2, 4, [](std::int64_t, int) {});
  });
  EXPECT_TRUE(test::meets_another_thread(kOwnThreads, 2));
}

TEST(Parallel, ManyThreadsMayCallAtOnce) {
  std::vector<std::thread> callers;
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([c] {
      for (int round = 0; round < 150; ++round) check_loop(kOwnThreads, 1 + (c + round) % 4, 37);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Parallel, ALoopDoesNotWaitForAnothersLoop) {
  std::atomic<bool> inside = false, release = false;
  std::thread holder([&] {
    parallel_for(kOwnThreads, 2, 2, [&](std::int64_t index, int) {
      if (index > 0) return;
      inside = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  check_loop(kOwnThreads, 2, 50);
  release = true;
  holder.join();
}

TEST(Parallel, HelpersTakeOverTheFloatingPointEnvironment) {
  std::atomic<int> wrong = 0;
  for (int mode : {FE_UPWARD, FE_TONEAREST, FE_DOWNWARD}) {
    std::fesetround(mode);
    parallel_for(kOwnThreads, 3, 100,
                 [&](std::int64_t, int) { wrong += std::fegetround() != mode; });
  }
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, AllocatesNothingOnceThreadsExist) {
  ASSERT_TRUE(test::meets_another_thread(kOwnThreads, 3));
  std::atomic<std::int64_t> sum = 0;
  const std::int64_t before = test::allocations();
  for (int round = 0; round < 100; ++round) {
    parallel_for(kOwnThreads, 3, 20, [&](std::int64_t index, int) { sum += index; });
  }
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(sum, 100 * 190);
}

TEST(Parallel, ManyShortLoopsOfRandomShape) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const int threads = 1 + static_cast<int>(random() % 5);
    const std::int64_t count = random() % 9;
    std::atomic<std::int64_t> sum = 0;
    parallel_for(kOwnThreads, threads, count, [&](std::int64_t index, int) { sum += index + 1; });
    ASSERT_EQ(sum, count * (count + 1) / 2) << "round " << round;
    // Pauses around the time after which helpers go to sleep.
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
  }
}

}  // namespace
}  // namespace strobe::cpu
