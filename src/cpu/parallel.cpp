#include "cpu/parallel.h"

#include <algorithm>
#include <utility>

#include "cpu/loop.h"

namespace strobe::cpu {
namespace {

thread_local bool inside_loop = false;

// The executor runs one task per worker; each then takes indices as any other thread does. So the
// ascending order and the worker numbers do not depend on how the executor orders and numbers.
void run_on_executor(const strobe_executor& executor, Loop& loop, int workers) {
  executor.parallel_for(
      executor.context, workers,
      [](void* arg, std::int64_t index, std::int32_t) {
        static_cast<Loop*>(arg)->help(static_cast<int>(index));
      },
      &loop);
}

}  // namespace

void Loop::work(int worker) {
  const bool outer = std::exchange(inside_loop, true);
  for (std::int64_t index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
    body_(arg_, index, worker);
  }
  inside_loop = outer;
}

void Loop::help(int worker) {
  std::fenv_t own;
  std::fegetenv(&own);
  std::fesetenv(&environment_);
  work(worker);
  std::fesetenv(&own);
}

bool Loop::inside() { return inside_loop; }

void parallel_for(const std::optional<strobe_executor>& executor, int threads, std::int64_t count,
                  strobe_task body, void* arg) {
  Loop loop(count, body, arg);
  const int limit = executor ? std::min(threads, executor->threads) : threads;
  const int workers = static_cast<int>(std::min<std::int64_t>({limit, kMaxThreads, count}));
  if (workers <= 1 || Loop::inside()) {
    loop.work(0);
    return;
  }
  loop.publish_environment();
  if (executor) {
    run_on_executor(*executor, loop, workers);
  } else {
    run_on_threads(loop, workers);
  }
}

}  // namespace strobe::cpu
