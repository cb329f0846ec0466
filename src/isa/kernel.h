// The entry point of one row of kernels.def: a kernel named `name` that runs the struct given after
// it.
#ifndef STROBE_SRC_ISA_KERNEL_H_
#define STROBE_SRC_ISA_KERNEL_H_

#include "isa/target.h"

namespace strobe::STROBE_TARGET {}
using namespace strobe::STROBE_TARGET;  // a row's translation unit names kernels without prefix

#define STROBE_KERNEL(name, ...)                                                                 \
  extern "C" __global__ void __launch_bounds__((__VA_ARGS__::kThreads), (__VA_ARGS__::kMinCtas)) \
      name(const __grid_constant__ __VA_ARGS__::Params p) {                                      \
    __VA_ARGS__::run(p);                                                                         \
  }

#endif  // STROBE_SRC_ISA_KERNEL_H_
