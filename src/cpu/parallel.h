// Threads of the CPU backend: one interface over Strobe's pool, OpenMP (build option) or the user's
// executor.
#ifndef STROBE_SRC_CPU_PARALLEL_H_
#define STROBE_SRC_CPU_PARALLEL_H_

#include <strobe/strobe.h>

#include <cstdint>
#include <optional>

namespace strobe::cpu {

// CPUs this process may run on (affinity mask, cgroup quota), or STROBE_NUM_THREADS where that is
// set to a positive number. At least 1.
int default_threads();

// Which implementation runs when there is no user executor: "pool" or "openmp".
const char* parallel_name();

// Calls body(arg, index, worker) for each index in [0, count), starting them in ascending order of
// index, on at most `threads` threads, the caller's among them; returns when all are done. worker
// is in [0, threads), and no two calls at once have the same. Allocates nothing once the pool's
// threads exist. Safe after fork(), from many threads at once, and from within a body (it then runs
// on that thread alone, as worker 0 of its own loop).
void parallel_for(const std::optional<strobe_executor>& executor, int threads, std::int64_t count,
                  strobe_task body, void* arg);

// The same for a callable f(index, worker).
template <class F>
void parallel_for(const std::optional<strobe_executor>& executor, int threads, std::int64_t count,
                  const F& f) {
  parallel_for(
      executor, threads, count,
      [](void* arg, std::int64_t index, std::int32_t worker) {
        (*static_cast<const F*>(arg))(index, worker);
      },
      const_cast<F*>(&f));
}

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_PARALLEL_H_
