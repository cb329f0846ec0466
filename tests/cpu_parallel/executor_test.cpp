// Loops on the user's own threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <thread>
#include <vector>

#include "cpu/parallel.h"
#include "loop_checks.h"

namespace strobe::cpu {
namespace {

using test::check_loop;
using test::check_order;

void run_in_order(void* context, std::int64_t count, strobe_task task, void* arg) {
  ++*static_cast<std::atomic<int>*>(context);
  for (std::int64_t index = 0; index < count; ++index) task(arg, index, 0);
}

void run_reversed(void* context, std::int64_t count, strobe_task task, void* arg) {
  ++*static_cast<std::atomic<int>*>(context);
  for (std::int64_t index = count; index-- > 0;) task(arg, index, 0);
}

// Needs at least `count` threads, so it numbers workers by index.
void run_thread_per_task(void* context, std::int64_t count, strobe_task task, void* arg) {
  ++*static_cast<std::atomic<int>*>(context);
  std::vector<std::thread> threads;
  for (std::int64_t index = count; index-- > 0;) {
    threads.emplace_back(task, arg, index, static_cast<std::int32_t>(index));
  }
  for (std::thread& thread : threads) thread.join();
}

class ExecutorTest : public testing::TestWithParam<decltype(strobe_executor::parallel_for)> {
 protected:
  std::atomic<int> loops_ = 0;
  test::Executor executor_ = strobe_executor{&loops_, GetParam(), 4, 0};
};

TEST_P(ExecutorTest, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 4, 9}) {
    for (std::int64_t count : {0, 1, 2, 5, 100}) check_loop(executor_, threads, count);
  }
  EXPECT_GT(loops_, 0) << "the executor was never asked";
}

TEST_P(ExecutorTest, TasksMayWaitForLowerIndices) {
  check_order(executor_, 4, 100);
  EXPECT_EQ(loops_, 1);
}

TEST_P(ExecutorTest, NestedLoopsRunOnTheirCallerAlone) {
  std::atomic<std::int64_t> sum = 0;
  std::atomic<int> wrong = 0;
  parallel_for(executor_, 4, 10, [&](std::int64_t, int) {
    const auto caller = std::this_thread::get_id();
    parallel_for(executor_, 4, 10, [&](std::int64_t inner, int worker) {
      wrong += worker != 0 || std::this_thread::get_id() != caller;
      sum += inner;
    });
  });
  EXPECT_EQ(sum, 450);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(loops_, 1);
}

TEST_P(ExecutorTest, LeavesTheFloatingPointEnvironmentOfItsThreadsAlone) {
  struct Recorder {
    decltype(strobe_executor::parallel_for) run;
    std::atomic<int> loops = 0;
    std::atomic<int> changed = 0;
  };
  Recorder recorder{GetParam()};
  const test::Executor executor =
      strobe_executor{&recorder,
                      [](void* context, std::int64_t count, strobe_task task, void* arg) {
                        struct Call {
                          strobe_task task;
                          void* arg;
                          Recorder* recorder;
                        } call{task, arg, static_cast<Recorder*>(context)};
                        call.recorder->run(
                            &call.recorder->loops, count,
                            [](void* raw, std::int64_t index, std::int32_t worker) {
                              const Call& call = *static_cast<Call*>(raw);
                              const int mode = std::fegetround();
                              std::fesetround(FE_DOWNWARD);
                              call.task(call.arg, index, worker);
                              call.recorder->changed += std::fegetround() != FE_DOWNWARD;
                              std::fesetround(mode);
                            },
                            &call);
                      },
                      4, 0};
  std::atomic<int> wrong = 0;
  parallel_for(executor, 4, 50,
               [&](std::int64_t, int) { wrong += std::fegetround() != FE_TONEAREST; });
  EXPECT_EQ(wrong, 0) << "a body ran in the environment of the executor's thread";
  EXPECT_EQ(recorder.changed, 0);
}

INSTANTIATE_TEST_SUITE_P(InOrder, ExecutorTest, testing::Values(run_in_order));
INSTANTIATE_TEST_SUITE_P(Reversed, ExecutorTest, testing::Values(run_reversed));
INSTANTIATE_TEST_SUITE_P(ThreadPerTask, ExecutorTest, testing::Values(run_thread_per_task));

}  // namespace
}  // namespace strobe::cpu
