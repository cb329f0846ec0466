// Small kernels in the shape of a real one (a struct of Params, sizes and run), for the tests of
// the build, of launches and of run-time compilation.
#ifndef STROBE_TESTS_CUDA_TEST_KERNELS_H_
#define STROBE_TESTS_CUDA_TEST_KERNELS_H_

#include "isa/target.h"

namespace strobe::STROBE_TARGET {

struct SaxpyConfig {
  int threads = 128;
  int shared_bytes = 0;

  constexpr int shared_floats() const { return shared_bytes / 4; }
};

#ifdef __CUDACC__

// y = a x + y, with x mirrored inside each block, through dynamic shared memory: the value that
// thread t adds lies in the last part of the shared memory that was asked for.
template <SaxpyConfig C>
struct Saxpy {
  struct Params {
    const float* x;
    float* y;
    float a;
    long long count;
  };
  static constexpr int kThreads = C.threads, kSharedBytes = C.shared_bytes, kMinCtas = 1;
  static_assert(C.shared_floats() >= C.threads);

  STROBE_DEVICE static void run(const Params& p) {
    extern __shared__ float shared[];
    float* mirror = shared + C.shared_floats() - C.threads;
    const int t = threadIdx.x;
    const long long i = static_cast<long long>(blockIdx.x) * C.threads + t;
    mirror[C.threads - 1 - t] = i < p.count ? p.x[i] : 0.0f;
    __syncthreads();
    if (i < p.count) p.y[i] += p.a * mirror[t];
  }
};

#if STROBE_ARCH >= 90
// Each block writes how many blocks its cluster has.
struct ClusterSize {
  struct Params {
    unsigned* size;
  };
  static constexpr int kThreads = 32, kSharedBytes = 0, kMinCtas = 1;

  STROBE_DEVICE static void run(const Params& p) {
    if (threadIdx.x == 0) p.size[blockIdx.x] = __clusterSizeInBlocks();
  }
};
#endif

#endif  // __CUDACC__

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_TESTS_CUDA_TEST_KERNELS_H_
