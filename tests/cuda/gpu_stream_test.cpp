// The caller's stream, context and graphs.
#include <thread>

#include "gpu_fixture.h"

namespace strobe::cuda {
namespace {

using GraphHandle = struct GraphOpaque*;
using GraphExec = struct GraphExecOpaque*;
constexpr unsigned kNonBlocking = 1;  // the stream does not wait for the legacy default stream
constexpr int kCaptureGlobal = 0;

class GpuStreamTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &executor_));
    ASSERT_OK(executor_->load(row("test_saxpy"), 512, &kernel_));
  }

  // Runs the saxpy on `stream` with `other` current, or no context if null; that must stay current.
  void run_with_current(Context other, Stream stream) {
    Buffer<float> x(*driver_, x_);
    Buffer<float> y(*driver_, y_);
    const SaxpyParams params{x.data(), y.data(), 5.0f, kCount};
    const gpu::Step steps[] = {launch_of(kernel_, params, 128, 512)};
    ASSERT_CUDA(driver_->context_push(other));
    const api::Status status = executor_->run(steps, stream);
    Context current = nullptr;
    EXPECT_CUDA(driver_->context_current(&current));
    EXPECT_EQ(current, other);
    EXPECT_CUDA(driver_->context_pop(&current));
    ASSERT_OK(status);
    EXPECT_EQ(y.read(), expected(5.0f, 128));
  }

  std::unique_ptr<CudaExecutor> executor_;
  const gpu::LoadedKernel* kernel_ = nullptr;
};

TEST_F(GpuStreamTest, OwnStream) {
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  run_with_current(primary_, stream);
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
}

TEST_F(GpuStreamTest, SpecialStreams) {
  run_with_current(primary_, kLegacyStream);
  run_with_current(primary_, kPerThreadStream);
}

// The stream is of the primary context, and another context is current at the call.
TEST_F(GpuStreamTest, AnotherContextIsCurrent) {
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  Context other = nullptr;
  ASSERT_CUDA(call(*driver_, "cuCtxCreate_v2", &other, 0u, facts_.handle));
  Context popped = nullptr;
  ASSERT_CUDA(driver_->context_pop(&popped));  // creation made it current
  run_with_current(other, stream);
  run_with_current(other, nullptr);  // NULL: the primary context's, whichever is current
  EXPECT_CUDA(call(*driver_, "cuCtxDestroy_v2", other));
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
}

// The stream itself is of a context that is not the primary one, and so are the buffers.
TEST_F(GpuStreamTest, StreamOfAnotherContext) {
  Context other = nullptr;
  ASSERT_CUDA(call(*driver_, "cuCtxCreate_v2", &other, 0u, facts_.handle));
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  {
    Buffer<float> x(*driver_, x_);
    Buffer<float> y(*driver_, y_);
    const SaxpyParams params{x.data(), y.data(), 5.0f, kCount};
    const gpu::Step steps[] = {launch_of(kernel_, params, 128, 512)};
    ASSERT_OK(executor_->run(steps, stream));
    EXPECT_EQ(y.read(), expected(5.0f, 128));
  }
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
  EXPECT_CUDA(call(*driver_, "cuCtxDestroy_v2", other));
}

// A thread on which no context was ever current.
TEST_F(GpuStreamTest, FreshThread) {
  Buffer<float> x(*driver_, x_);
  Buffer<float> y(*driver_, y_);
  const SaxpyParams params{x.data(), y.data(), 5.0f, kCount};
  const gpu::Step steps[] = {launch_of(kernel_, params, 128, 512)};
  api::Status status;
  Context current = primary_;
  std::thread([&] {
    status = executor_->run(steps, nullptr);
    driver_->context_current(&current);
  }).join();
  ASSERT_OK(status);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(y.read(), expected(5.0f, 128));
}

TEST_F(GpuStreamTest, GraphCaptureAndReplay) {
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  Buffer<float> x(*driver_, x_);
  Buffer<float> y(*driver_, y_);
  Buffer<float> scratch(*driver_, y_);
  {
    const SaxpyParams params{x.data(), y.data(), 2.0f, kCount};
    const gpu::Step steps[] = {gpu::Memset{scratch.data(), 0, scratch.bytes()},
                               launch_of(kernel_, params, 128, 512),
                               gpu::Copy{scratch.data(), y.data(), y.bytes()}};
    ASSERT_CUDA(call(*driver_, "cuStreamBeginCapture_v2", stream, kCaptureGlobal));
    const api::Status status = executor_->run(steps, stream);
    // A plan made meanwhile loads its rows without breaking the capture.
    const gpu::LoadedKernel* another = nullptr;
    const api::Status loaded = executor_->load(row("test_saxpy_64k"), 65536, &another);
    GraphHandle graph = nullptr;
    ASSERT_CUDA(call(*driver_, "cuStreamEndCapture", stream, &graph));
    ASSERT_OK(status);
    ASSERT_OK(loaded);
    EXPECT_EQ(y.read(), y_) << "captured work ran already";

    GraphExec exec = nullptr;
    ASSERT_CUDA(call(*driver_, "cuGraphInstantiateWithFlags", &exec, graph, 0ull));
    for (int replay = 0; replay < 3; ++replay) {
      ASSERT_CUDA(call(*driver_, "cuGraphLaunch", exec, stream));
    }
    EXPECT_EQ(y.read(), expected(2.0f, 128, 3));
    EXPECT_EQ(scratch.read(), expected(2.0f, 128, 3));
    // New values at the captured addresses.
    std::swap(x_, y_);
    x.write(x_);
    y.write(y_);
    ASSERT_CUDA(call(*driver_, "cuGraphLaunch", exec, stream));
    EXPECT_EQ(y.read(), expected(2.0f, 128));
    EXPECT_CUDA(call(*driver_, "cuGraphExecDestroy", exec));
    EXPECT_CUDA(call(*driver_, "cuGraphDestroy", graph));
  }
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
}

// run() must not wait: it returns while the stream is still blocked by the caller.
TEST_F(GpuStreamTest, RunDoesNotWait) {
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  Buffer<float> x(*driver_, x_);
  Buffer<float> y(*driver_, y_);
  Buffer<unsigned> gate(*driver_, {0});
  ASSERT_CUDA(call(*driver_, "cuStreamWaitValue32_v2", stream,
                   reinterpret_cast<DevicePointer>(gate.data()), 1u, 1u /* equal */));
  const SaxpyParams params{x.data(), y.data(), 4.0f, kCount};
  const gpu::Step steps[] = {launch_of(kernel_, params, 128, 512)};
  const api::Status status = executor_->run(steps, stream);
  constexpr Error kNotReady = 600;
  EXPECT_EQ(call(*driver_, "cuStreamQuery", stream), kNotReady);
  gate.write({1});  // from the legacy stream, which this one does not wait for
  EXPECT_CUDA(call(*driver_, "cuStreamSynchronize", stream));
  ASSERT_OK(status);
  EXPECT_EQ(y.read(), expected(4.0f, 128));
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
}

TEST_F(GpuStreamTest, StreamOfAnotherGpu) {
  int count = 0;
  ASSERT_OK(device_count(&count));
  if (count < 2) GTEST_SKIP() << "one GPU";
  Context second = nullptr;
  DeviceHandle handle = 0;
  ASSERT_CUDA(driver_->device_get(&handle, 1));
  ASSERT_CUDA(driver_->primary_retain(&second, handle));
  ASSERT_CUDA(driver_->context_push(second));
  Stream stream = nullptr;
  ASSERT_CUDA(call(*driver_, "cuStreamCreate", &stream, kNonBlocking));
  const api::Status status = executor_->run({}, stream);
  EXPECT_EQ(status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(status.argument, "stream");
  EXPECT_CUDA(call(*driver_, "cuStreamDestroy_v2", stream));
  Context ignored;
  EXPECT_CUDA(driver_->context_pop(&ignored));
}

}  // namespace
}  // namespace strobe::cuda
