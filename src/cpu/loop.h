// One parallel loop, and what runs it: the part that Strobe's pool, OpenMP and user executors
// share.
#ifndef STROBE_SRC_CPU_LOOP_H_
#define STROBE_SRC_CPU_LOOP_H_

#include <strobe/strobe.h>

#include <atomic>
#include <cfenv>
#include <cstdint>

namespace strobe::cpu {

// More are cut to this many.
inline constexpr int kMaxThreads = 1024;

// Lives on its caller's stack. Threads take indices from one counter, so an index is handed out
// only after every lower one, whatever the threads are.
class Loop {
 public:
  Loop(std::int64_t count, strobe_task body, void* arg) : count_(count), body_(body), arg_(arg) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The part of the calling thread: runs bodies until no index is left.
  void work(int worker);

  // The part of any other thread. It takes over the caller's floating-point environment (rounding,
  // flushing of subnormals), for results must not depend on which thread computes them.
  void help(int worker);

  // Before other threads may call help().
  void publish_environment() { std::fegetenv(&environment_); }

  // True on a thread that is inside work() or help() of any loop.
  static bool inside();

 private:
  const std::int64_t count_;
  const strobe_task body_;
  void* const arg_;
  std::fenv_t environment_;
  alignas(64) std::atomic<std::int64_t> next_ = 0;  // on a cache line of its own
};

// Runs the loop on at most `threads` (2 to kMaxThreads) threads, the caller's as worker 0: Strobe's
// pool (thread_pool.cpp) or OpenMP (openmp.cpp), as built.
void run_on_threads(Loop& loop, int threads);

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_LOOP_H_
