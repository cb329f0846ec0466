// What the GPU tests share: the driver's functions that only tests need, buffers, and a saxpy.
#ifndef STROBE_TESTS_CUDA_GPU_FIXTURE_H_
#define STROBE_TESTS_CUDA_GPU_FIXTURE_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cuda/executor.h"
#include "test_rows.h"

namespace strobe::cuda {

// A function of the driver, by its symbol.
template <class... Args>
Error call(const Driver& driver, const char* symbol, Args... args) {
  const auto function = reinterpret_cast<Error (*)(Args...)>(dlsym(driver.handle, symbol));
  if (function == nullptr) return -1;
  return function(args...);
}

#define ASSERT_CUDA(...) ASSERT_EQ((__VA_ARGS__), kSuccess)
#define EXPECT_CUDA(...) EXPECT_EQ((__VA_ARGS__), kSuccess)
#define ASSERT_OK(...)                            \
  do {                                            \
    const api::Status status_ = (__VA_ARGS__);    \
    ASSERT_TRUE(status_.ok()) << status_.message; \
  } while (false)

// Device memory that starts as copies of `host`, in whatever context is current.
template <class T>
class Buffer {
 public:
  Buffer(const Driver& driver, const std::vector<T>& host) : driver_(driver), count_(host.size()) {
    EXPECT_CUDA(call(driver_, "cuMemAlloc_v2", &at_, bytes()));
    write(host);
  }
  ~Buffer() { EXPECT_CUDA(call(driver_, "cuMemFree_v2", at_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return reinterpret_cast<T*>(at_); }
  std::size_t bytes() const { return count_ * sizeof(T); }
  void write(const std::vector<T>& host) {
    EXPECT_CUDA(
        call(driver_, "cuMemcpyHtoD_v2", at_, static_cast<const void*>(host.data()), bytes()));
    EXPECT_CUDA(call(driver_, "cuStreamSynchronize", Stream{}));  // the legacy stream alone
  }
  std::vector<T> read() const {  // after everything enqueued on any stream of this context
    std::vector<T> host(count_);
    EXPECT_CUDA(call(driver_, "cuCtxSynchronize"));
    EXPECT_CUDA(call(driver_, "cuMemcpyDtoH_v2", static_cast<void*>(host.data()), at_, bytes()));
    return host;
  }

 private:
  const Driver& driver_;
  std::size_t count_;
  DevicePointer at_ = 0;
};

struct SaxpyParams {  // Saxpy::Params of test_kernels.h
  const float* x;
  float* y;
  float a;
  long long count;
};

class GpuTest : public testing::Test {
 protected:
  static constexpr int kCount = 1000;  // a part of the last block is unused

  void SetUp() override {
    const api::Status status = driver(&driver_);
    if (!status.ok()) GTEST_SKIP() << status.message;
    ASSERT_OK(device_facts(0, &facts_));
    ASSERT_CUDA(driver_->primary_retain(&primary_, facts_.handle));
    ASSERT_CUDA(driver_->context_push(primary_));
    pushed_ = true;
    for (int i = 0; i < kCount; ++i) {
      x_.push_back(static_cast<float>(i % 97) - 40);
      y_.push_back(static_cast<float>(i % 31));
    }
  }
  void TearDown() override {
    Context ignored;
    if (pushed_) {
      EXPECT_CUDA(driver_->context_pop(&ignored));
    }
  }

  const gpu::Row& row(const char* name) const { return *gpu::find_row(name, gpu::test_rows()); }

  // What `times` runs of the kernel make of y.
  std::vector<float> expected(float a, int threads, int times = 1) const {
    std::vector<float> y = y_;
    for (int i = 0; i < kCount; ++i) {
      const int from = i / threads * threads + threads - 1 - i % threads;
      if (from < kCount) y[i] += static_cast<float>(times) * a * x_[from];
    }
    return y;
  }
  static gpu::Launch launch_of(const gpu::LoadedKernel* kernel, const SaxpyParams& params,
                               unsigned threads, unsigned shared_bytes) {
    return {.kernel = kernel,
            .grid = (kCount + threads - 1) / threads,
            .block = threads,
            .shared_bytes = shared_bytes,
            .params = &params,
            .params_bytes = sizeof(params)};
  }
  // Loads the row from `source`, runs it once on the NULL stream and checks y.
  void check_row(const char* name, ImageSource source, const char* image, unsigned threads,
                 unsigned shared_bytes) {
    std::unique_ptr<CudaExecutor> executor;
    ASSERT_OK(CudaExecutor::create(0, source, &executor));
    const gpu::LoadedKernel* kernel = nullptr;
    ASSERT_OK(executor->load(row(name), shared_bytes, &kernel));
    EXPECT_EQ(std::string_view(kernel->image).substr(0, 5), image);
    EXPECT_GT(kernel->registers, 0);
    Buffer<float> x(*driver_, x_);
    Buffer<float> y(*driver_, y_);
    const SaxpyParams params{x.data(), y.data(), 3.0f, kCount};
    const gpu::Step steps[] = {launch_of(kernel, params, threads, shared_bytes)};
    ASSERT_OK(executor->run(steps, nullptr));
    EXPECT_EQ(y.read(), expected(3.0f, static_cast<int>(threads)));
  }

  const Driver* driver_ = nullptr;
  DeviceFacts facts_;
  Context primary_ = nullptr;
  bool pushed_ = false;
  std::vector<float> x_, y_;
};

}  // namespace strobe::cuda

#endif  // STROBE_TESTS_CUDA_GPU_FIXTURE_H_
