// The executor on a driver without a GPU (fake_driver.c): what it asks of the driver, in which
// context, and what it does not do.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "cpu_parallel/allocations.h"
#include "cuda/executor.h"
#include "cuda/modules.h"

namespace strobe::cuda {
namespace {

constexpr unsigned char kCubinBytes[] = "\177ELF cubin";
constexpr unsigned char kPtxBytes[] = ".version 9.0";
constexpr gpu::Image kImages[] = {
    {gpu::ImageKind::kCubin, 80, kCubinBytes, kCubinBytes + 10},
    {gpu::ImageKind::kCubin, 90, kCubinBytes, kCubinBytes + 10},
    {gpu::ImageKind::kPtx, 80, kPtxBytes, kPtxBytes + 12},
};
const gpu::Row kRow{"some_row", "h", "T", 80, kImages};

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

class FakeDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("STROBE_LIBCUDA", STROBE_FAKE_DRIVER, 1);
    void* library = dlopen(STROBE_FAKE_DRIVER, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    log_ = reinterpret_cast<void (*)(char*)>(dlsym(library, "fake_log"));
    depth_ = reinterpret_cast<int (*)()>(dlsym(library, "fake_depth"));
    set_version_ = reinterpret_cast<void (*)(int)>(dlsym(library, "fake_set_version"));
    const api::Status status = CudaExecutor::create(0, ImageSource::kAutomatic, &executor_);
    ASSERT_TRUE(status.ok()) << status.message;
    log();
  }
  void TearDown() override { EXPECT_EQ(depth_(), 0) << "contexts are left pushed"; }

  std::string log() const {
    char text[8192];
    log_(text);
    return text;
  }
  const gpu::LoadedKernel* load(const gpu::Row& row, std::uint32_t shared_bytes = 0) {
    const gpu::LoadedKernel* kernel = nullptr;
    const api::Status status = executor_->load(row, shared_bytes, &kernel);
    EXPECT_TRUE(status.ok()) << status.message;
    return kernel;
  }
  gpu::Launch launch() {
    static const int kParam = 77;
    return {.kernel = load(kRow),
            .grid = 3,
            .block = 128,
            .shared_bytes = 512,
            .params = &kParam,
            .params_bytes = sizeof(kParam)};
  }

  void (*log_)(char*) = nullptr;
  int (*depth_)() = nullptr;
  void (*set_version_)(int) = nullptr;
  std::unique_ptr<CudaExecutor> executor_;
};

TEST_F(FakeDriverTest, LoadsOnceInThePrimaryContext) {
  gpu::Row row = kRow;
  row.name = "loaded_once";
  const gpu::LoadedKernel* kernel = load(row, 1000);
  EXPECT_EQ(log(), "load cubin;kernel loaded_once;function in 1;attribute 8 = 1000;");
  EXPECT_STREQ(kernel->image, "cubin");
  EXPECT_EQ(kernel->registers, 64);
  EXPECT_EQ(load(row, 900), kernel);
  EXPECT_EQ(log(), "");
  EXPECT_EQ(load(row, 2000), kernel);
  EXPECT_EQ(log(), "attribute 8 = 2000;") << "raised, never lowered";
}

TEST_F(FakeDriverTest, ForcedPtx) {
  std::unique_ptr<CudaExecutor> ptx;
  ASSERT_TRUE(CudaExecutor::create(0, ImageSource::kPtx, &ptx).ok());
  const gpu::LoadedKernel* kernel = nullptr;
  ASSERT_TRUE(ptx->load(kRow, 0, &kernel).ok());
  EXPECT_EQ(log().substr(0, 10), "load text;");
  EXPECT_STREQ(kernel->image, "ptx");
  gpu::Row without = kRow;
  without.images = without.images.first(2);
  without.name = "without_ptx";
  const api::Status status = ptx->load(without, 0, &kernel);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  EXPECT_NE(status.message.find("PTX"), std::string::npos) << status.message;
}

TEST_F(FakeDriverTest, RunsStepsInOrder) {
  gpu::Launch plain = launch();
  gpu::Launch special = plain;
  special.cluster = 2;
  special.grid = 4;
  special.overlap_previous = true;
  gpu::Launch nothing = plain;
  nothing.grid = 0;
  const gpu::Step steps[] = {gpu::Memset{at(4096), 7, 20},      plain,   nothing,
                             gpu::Copy{at(8192), at(4096), 30}, special, gpu::Memset{at(1), 0, 0}};
  log();
  ASSERT_TRUE(executor_->run(steps, nullptr).ok());
  EXPECT_EQ(log(),
            "set 4096 7 20 stream 0;"
            "launch 6 grid 3 1 1 block 128 1 1 shared 512 stream 0 param 77 in 1;"
            "copy 8192 4096 30 stream 0;"
            "launch 6 grid 4 1 1 block 128 1 1 shared 512 stream 0 param 77 4: 2 6: 1 in 1;");
}

TEST_F(FakeDriverTest, FollowsTheStreamsContext) {
  const gpu::Step steps[] = {launch()};
  log();
  const auto context_of_run = [&](std::uintptr_t stream) {
    EXPECT_TRUE(executor_->run(steps, at(stream)).ok());
    const std::string text = log();
    return text.substr(text.rfind("in "));
  };
  EXPECT_EQ(context_of_run(100), "in 1;");  // of the primary context
  EXPECT_EQ(context_of_run(300), "in 3;");  // of another of this GPU
  EXPECT_EQ(context_of_run(0), "in 1;");    // NULL, legacy and per thread: the primary context
  EXPECT_EQ(context_of_run(1), "in 1;");
  EXPECT_EQ(context_of_run(2), "in 1;");
}

TEST_F(FakeDriverTest, StreamOfAnotherGpuIsRefused) {
  const gpu::Step steps[] = {launch()};
  log();
  const api::Status status = executor_->run(steps, at(900));
  EXPECT_EQ(status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(status.argument, "stream");
  EXPECT_NE(status.message.find("GPU 1"), std::string::npos) << status.message;
  EXPECT_EQ(log(), "") << "something was enqueued";
}

TEST_F(FakeDriverTest, FailedLaunchStopsTheList) {
  gpu::Launch bad = launch();
  bad.grid = 13;  // the fake driver refuses it
  const gpu::Step steps[] = {bad, gpu::Memset{at(4096), 7, 20}};
  log();
  const api::Status status = executor_->run(steps, nullptr);
  EXPECT_EQ(status.code, STROBE_INTERNAL);
  for (const char* word : {"some_row", "grid 13", "FAKE_ERROR"}) {
    EXPECT_NE(status.message.find(word), std::string::npos) << word << ": " << status.message;
  }
  EXPECT_EQ(log().find("set"), std::string::npos);
}

TEST_F(FakeDriverTest, RunAllocatesNothing) {
  const gpu::Step steps[] = {launch(), gpu::Memset{at(4096), 7, 20}, launch()};
  const std::int64_t before = cpu::test::allocations();
  const api::Status status = executor_->run(steps, at(300));
  const std::int64_t after = cpu::test::allocations();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(after, before);
  EXPECT_GT(before, 0) << "the counter does not work";
}

TEST_F(FakeDriverTest, MoreSharedMemoryThanABlockHas) {
  const gpu::LoadedKernel* kernel = nullptr;
  const api::Status status = executor_->load(kRow, 232449, &kernel);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  for (const char* word : {"232448", "232449", "Fake GPU"}) {
    EXPECT_NE(status.message.find(word), std::string::npos) << word << ": " << status.message;
  }
}

// Code that is newer than the driver: both versions are named.
TEST_F(FakeDriverTest, DriverOlderThanTheCode) {
  set_version_(12080);
  Driver old = {};
  ASSERT_TRUE(open_driver(STROBE_FAKE_DRIVER, &old).ok());
  EXPECT_EQ(old.version, 12080);
  Kernel kernel = nullptr;
  const Code code{kCubinBytes, "cubin", 13000, {}};
  const api::Status status = load_code(old, kRow, code, &kernel);
  set_version_(13000);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  for (const char* word : {"CUDA 12.8", "CUDA 13.0", "Update the driver"}) {
    EXPECT_NE(status.message.find(word), std::string::npos) << word << ": " << status.message;
  }
}

}  // namespace
}  // namespace strobe::cuda
