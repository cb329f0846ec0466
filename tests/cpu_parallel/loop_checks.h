// Checks of one loop, for any executor. No check hangs: a wait that takes 20 s is a failure.
#ifndef STROBE_TESTS_CPU_PARALLEL_LOOP_CHECKS_H_
#define STROBE_TESTS_CPU_PARALLEL_LOOP_CHECKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "cpu/parallel.h"

namespace strobe::cpu::test {

using Executor = std::optional<strobe_executor>;
inline const Executor kOwnThreads = std::nullopt;

template <class Done>
bool wait_for(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Every index once; worker numbers in range and never twice at the same time.
inline void check_loop(const Executor& executor, int threads, std::int64_t count) {
  const int workers = std::clamp(threads, 1, 1 << 12);
  std::vector<std::atomic<int>> runs(count), inside(workers);
  std::atomic<int> bad_worker = 0, shared_worker = 0;
  parallel_for(executor, threads, count, [&](std::int64_t index, int worker) {
    ++runs[index];
    if (worker < 0 || worker >= workers) {
      ++bad_worker;
      return;
    }
    if (inside[worker].exchange(1) != 0) ++shared_worker;
    if (index % 16 == 0) std::this_thread::yield();
    inside[worker] = 0;
  });
  for (std::int64_t index = 0; index < count; ++index) EXPECT_EQ(runs[index], 1) << index;
  EXPECT_EQ(bad_worker, 0);
  EXPECT_EQ(shared_worker, 0);
}

// Every task waits until all lower ones have started, which an order other than ascending never
// lets happen.
inline void check_order(const Executor& executor, int threads, std::int64_t count) {
  std::vector<std::atomic<int>> started(count);
  std::atomic<int> failures = 0;
  parallel_for(executor, threads, count, [&](std::int64_t index, int) {
    started[index] = 1;
    for (std::int64_t lower = 0; lower < index && failures == 0; ++lower) {
      if (!wait_for([&] { return started[lower] == 1; })) ++failures;
    }
  });
  EXPECT_EQ(failures, 0);
}

// True if two threads are inside one loop at the same time: index 0 waits for index 1 to start.
inline bool meets_another_thread(const Executor& executor, int threads) {
  std::atomic<bool> met = false;
  std::atomic<bool> other = false;
  parallel_for(executor, threads, threads, [&](std::int64_t index, int) {
    if (index == 0) {
      met = wait_for([&] { return other.load(); });
    } else {
      other = true;
    }
  });
  return met;
}

}  // namespace strobe::cpu::test

#endif  // STROBE_TESTS_CPU_PARALLEL_LOOP_CHECKS_H_
