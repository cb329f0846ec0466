// Counts the heap allocations of this program.
#ifndef STROBE_TESTS_CPU_PARALLEL_ALLOCATIONS_H_
#define STROBE_TESTS_CPU_PARALLEL_ALLOCATIONS_H_

#include <cstdint>

namespace strobe::cpu::test {

// Calls of operator new so far, by all threads.
std::int64_t allocations();

}  // namespace strobe::cpu::test

#endif  // STROBE_TESTS_CPU_PARALLEL_ALLOCATIONS_H_
