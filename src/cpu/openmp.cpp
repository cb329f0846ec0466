// Loops on OpenMP (build option STROBE_OPENMP): shares the threads of a program that uses OpenMP
// itself. libgomp hangs in a child forked after its first use; Strobe's own pool does not.
#include <omp.h>

#include "cpu/loop.h"
#include "cpu/parallel.h"

namespace strobe::cpu {

const char* parallel_name() { return "openmp"; }

void run_on_threads(Loop& loop, int threads) {
#pragma omp parallel num_threads(threads)
  loop.help(omp_get_thread_num());
}

}  // namespace strobe::cpu
