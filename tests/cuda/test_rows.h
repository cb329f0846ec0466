// The rows of test_kernels.def, as the build makes them.
#ifndef STROBE_TESTS_CUDA_TEST_ROWS_H_
#define STROBE_TESTS_CUDA_TEST_ROWS_H_

#include "gpu/rows.h"

namespace strobe::gpu {

std::span<const Row> test_rows();
std::span<const Header> test_headers();

}  // namespace strobe::gpu

#endif  // STROBE_TESTS_CUDA_TEST_ROWS_H_
