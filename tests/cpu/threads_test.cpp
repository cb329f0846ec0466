// The same bits for any number of threads, any executor, in a forked child, and with many runs of
// one plan at once.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "cpu/parallel.h"
#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Threads : public OnTarget {};

// Several items of work in every loop, dQ summed over chunks, everything asked for.
Case busy(Op op, DType dtype = DType::f32) {
  Case c = dense(150, 500, 24, dtype, op);
  Problem& p = c.problem;
  p.batch = 2;
  p.heads = 6;
  p.kv_heads = 2;
  p.mask = Band::causal();
  p.sinks = true;
  p.softcap = 30;
  p.dropout_p = 0.1;
  p.bias = {.dtype = DType::f32, .batch = 1, .heads = 1};
  c.dlse = c.dbias = c.dsinks = true;
  return c;
}

std::vector<Case> busy_cases() {
  std::vector<Case> cases = {busy(Op::forward), busy(Op::backward),
                             busy(Op::backward, DType::bf16)};
  cases.push_back(busy(Op::backward));
  cases.back().problem.bias = {.dtype = DType::f32, .batch = 1, .seqlen_q = 1};
  cases.push_back(dense(2, 6000, 16));  // split keys
  cases.push_back(busy(Op::probs));
  cases.back().rows = {0, 149, 70, 70};
  cases.back().problem.num_rows = 4;
  cases.push_back(cases.back());
  cases.back().problem.op = Op::keep_mask;
  cases.push_back(dense(100, 0, 16, DType::f16, Op::merge));
  cases.back().problem.partials = 3;
  cases.back().empty_partials = {false, false, true};
  return cases;
}

TEST_P(Threads, AnyNumberGivesTheSameBits) {
  for (const Case& c : busy_cases()) {
    const Inputs in = inputs_of(c);
    const Outputs expected = run_cpu(c, in);
    for (int threads : {2, 3, 8}) {
      EXPECT_TRUE(same_bits(run_plan(c, in, options(threads)), expected))
          << threads << " threads: " << describe(c);
    }
  }
}

void run_in_order(void*, std::int64_t count, strobe_task task, void* arg) {
  for (std::int64_t index = 0; index < count; ++index) task(arg, index, 0);
}
void run_reversed(void*, std::int64_t count, strobe_task task, void* arg) {
  for (std::int64_t index = count; index-- > 0;) task(arg, index, 0);
}
void run_on_four(void*, std::int64_t count, strobe_task task, void* arg) {
  std::atomic<std::int64_t> next = 0;
  std::vector<std::thread> threads;
  for (std::int32_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (std::int64_t index; (index = next++) < count;) task(arg, index, worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Threads, AnyExecutorGivesTheSameBits) {
  for (const Case& c : busy_cases()) {
    const Inputs in = inputs_of(c);
    const Outputs expected = run_cpu(c, in);
    for (auto loop : {run_in_order, run_reversed, run_on_four}) {
      const strobe_executor executor = {nullptr, loop, 4, 0};
      PlanOptions own = options(0);
      own.executor = &executor;
      EXPECT_TRUE(same_bits(run_plan(c, in, own), expected)) << describe(c);
    }
  }
}

// One plan in several threads at once, each run with its own workspace and outputs.
TEST_P(Threads, ManyRunsOfOnePlanAtOnce) {
  for (const Case& c : {busy(Op::forward), busy(Op::backward), dense(2, 6000, 16)}) {
    const Inputs in = inputs_of(c);
    const Outputs expected = run_cpu(c, in);
    const Result<Plan> plan = make_plan(c.problem, options(3));
    ASSERT_TRUE(plan) << plan.status().message();
    std::atomic<int> wrong = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 3; ++round) {
          Outputs out = make_outputs(c);
          wrong += !run(*plan, c, in, &out) || !same_bits(out, expected);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0) << describe(c);
  }
}

// As a data loader does: the parent has used threads, then a forked child computes.
TEST_P(Threads, ForkedChildGivesTheSameBits) {
  if (kSanitizers == "thread")
    GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked child";
  if (std::string(cpu::parallel_name()) != "pool") {
    GTEST_SKIP() << cpu::parallel_name() << " does not survive fork()";
  }
  for (const Case& c : {busy(Op::forward), busy(Op::backward)}) {
    const Inputs in = inputs_of(c);
    const Result<Plan> plan = make_plan(c.problem, options(4));
    ASSERT_TRUE(plan) << plan.status().message();
    Outputs expected = make_outputs(c);
    ASSERT_TRUE(run(*plan, c, in, &expected));
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // a hang ends the child, and fails the test
      Outputs out = make_outputs(c);
      _exit(run(*plan, c, in, &out) && same_bits(out, expected) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    Outputs again = make_outputs(c);
    ASSERT_TRUE(run(*plan, c, in, &again));
    EXPECT_TRUE(same_bits(again, expected));
  }
}

STROBE_ON_EVERY_TARGET(Threads);

}  // namespace
}  // namespace strobe::harness
