// Images, launches, memsets, copies and refusals on a GPU.
#include <cstddef>
#include <cstdlib>

#include "gpu_fixture.h"

namespace strobe::cuda {
namespace {

TEST_F(GpuTest, Facts) {
  EXPECT_FALSE(facts_.name.empty());
  EXPECT_GE(facts_.capability, 75);
  EXPECT_GT(facts_.multiprocessors, 0);
  EXPECT_GE(facts_.shared_bytes_per_block, 48 * 1024);
  EXPECT_GE(facts_.shared_bytes_per_multiprocessor, facts_.shared_bytes_per_block);
  EXPECT_GT(facts_.l2_bytes, 0);
  EXPECT_GT(facts_.memory_bytes, std::size_t{1} << 30);
  RecordProperty("device", facts_.name);
  RecordProperty("driver", driver_->version);
}

TEST_F(GpuTest, DeviceThatIsNotThere) {
  DeviceFacts facts;
  const api::Status status = device_facts(4096, &facts);
  EXPECT_EQ(status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_NE(status.message.find("4096"), std::string::npos);
}

TEST_F(GpuTest, Cubin) {
  const gpu::Image* image = gpu::choose_image(row("test_saxpy"), facts_.capability);
  if (image == nullptr || image->kind != gpu::ImageKind::kCubin) {
    GTEST_SKIP() << "no cubin for this GPU in this build";
  }
  check_row("test_saxpy", ImageSource::kCubin, "cubin", 128, 512);
  check_row("test_saxpy_64k", ImageSource::kAutomatic, "cubin", 256, 65536);
}

TEST_F(GpuTest, ForcedPtx) {
  if (row("test_saxpy").images.empty()) GTEST_SKIP() << "built without nvcc";
  check_row("test_saxpy", ImageSource::kPtx, "ptx", 128, 512);
  check_row("test_saxpy_64k", ImageSource::kPtx, "ptx", 256, 65536);
}

TEST_F(GpuTest, RunTimeCompilation) {
  check_row("test_saxpy", ImageSource::kNvrtc, "nvrtc", 128, 512);
  check_row("test_saxpy_64k", ImageSource::kNvrtc, "nvrtc", 256, 65536);
}

// A row that no table lists, whose strings go away after loading.
TEST_F(GpuTest, RowMadeAtRunTime) {
  std::unique_ptr<CudaExecutor> executor;
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &executor));
  const gpu::LoadedKernel* kernel = nullptr;
  {
    const std::string type = "Saxpy<SaxpyConfig{.threads = 64, .shared_bytes = 256}>";
    const gpu::Row made{"made", "test_kernels.h", type.c_str(), 80, {}, gpu::test_headers};
    ASSERT_OK(executor->load(made, 256, &kernel));
  }
  EXPECT_STREQ(kernel->row.name, "made");
  Buffer<float> x(*driver_, x_);
  Buffer<float> y(*driver_, y_);
  const SaxpyParams params{x.data(), y.data(), -2.0f, kCount};
  const gpu::Step steps[] = {launch_of(kernel, params, 64, 256)};
  ASSERT_OK(executor->run(steps, nullptr));
  EXPECT_EQ(y.read(), expected(-2.0f, 64));
}

TEST_F(GpuTest, LoadingAgainGivesTheSame) {
  std::unique_ptr<CudaExecutor> a, b;
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &a));
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &b));
  const gpu::LoadedKernel* first = nullptr;
  const gpu::LoadedKernel* second = nullptr;
  ASSERT_OK(a->load(row("test_saxpy"), 512, &first));
  ASSERT_OK(b->load(row("test_saxpy"), 256, &second));
  EXPECT_EQ(first, second);
}

TEST_F(GpuTest, StepsRunInOrder) {
  std::unique_ptr<CudaExecutor> executor;
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &executor));
  const gpu::LoadedKernel* kernel = nullptr;
  ASSERT_OK(executor->load(row("test_saxpy"), 512, &kernel));
  Buffer<float> x(*driver_, x_);
  Buffer<float> y(*driver_, y_);
  Buffer<float> copy(*driver_, y_);
  const SaxpyParams params{x.data(), y.data(), 1.0f, kCount};
  gpu::Launch launch = launch_of(kernel, params, 128, 512);
  gpu::Launch nothing = launch;
  nothing.grid = 0;
  // y = 0; y += mirrored x; copy = y; y += mirrored x; the first element of y = bytes of 0x3f.
  const gpu::Step steps[] = {gpu::Memset{y.data(), 0, y.bytes()},
                             launch,
                             gpu::Copy{copy.data(), y.data(), y.bytes()},
                             nothing,
                             launch,
                             gpu::Memset{y.data(), 0x3f, 4},
                             gpu::Memset{y.data(), 1, 0}};
  ASSERT_OK(executor->run(steps, nullptr));
  y_.assign(kCount, 0.0f);
  EXPECT_EQ(copy.read(), expected(1.0f, 128));
  std::vector<float> twice = expected(1.0f, 128, 2);
  twice[0] = 0x1.7e7e7ep-1f;  // 0x3f3f3f3f
  EXPECT_EQ(y.read(), twice);
}

TEST_F(GpuTest, Cluster) {
  if (facts_.capability != 90) GTEST_SKIP() << "a row for compute capability 9.0";
  std::unique_ptr<CudaExecutor> executor;
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &executor));
  const gpu::LoadedKernel* kernel = nullptr;
  ASSERT_OK(executor->load(row("test_cluster_size"), 0, &kernel));
  for (const unsigned cluster : {1u, 2u, 4u}) {
    Buffer<unsigned> sizes(*driver_, std::vector<unsigned>(8, 99));
    struct {
      unsigned* size;
    } params{sizes.data()};
    // Nothing came before that this kernel could depend on, so it may overlap.
    const gpu::Step steps[] = {gpu::Launch{.kernel = kernel,
                                           .grid = 8,
                                           .block = 32,
                                           .cluster = cluster,
                                           .overlap_previous = true,
                                           .params = &params,
                                           .params_bytes = sizeof(params)}};
    ASSERT_OK(executor->run(steps, nullptr));
    EXPECT_EQ(sizes.read(), std::vector<unsigned>(8, cluster));
  }
}

TEST_F(GpuTest, Refusals) {
  std::unique_ptr<CudaExecutor> executor;
  ASSERT_OK(CudaExecutor::create(0, ImageSource::kAutomatic, &executor));
  const gpu::LoadedKernel* kernel = nullptr;
  // More shared memory than any block has.
  api::Status status = executor->load(row("test_saxpy"), 1 << 20, &kernel);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  EXPECT_NE(status.message.find("1048576"), std::string::npos) << status.message;
  // A row for another generation.
  const int other = facts_.capability / 10 == 10 ? 90 : 100;
  const gpu::Row foreign{"foreign", "test_kernels.h", "ClusterSize", other, {}, gpu::test_headers};
  EXPECT_EQ(executor->load(foreign, 0, &kernel).code, STROBE_UNSUPPORTED);
  // A row that does not compile: the message holds the compiler's.
  const gpu::Row broken{"broken", "test_kernels.h", "Nonsense", 80, {}, gpu::test_headers};
  status = executor->load(broken, 0, &kernel);
  EXPECT_NE(status.message.find("Nonsense"), std::string::npos) << status.message;
  // An image that is none.
  static const unsigned char kGarbage[] = "this is no cubin";
  const gpu::Image image{gpu::ImageKind::kCubin, facts_.capability, kGarbage, kGarbage + 16};
  const gpu::Row damaged{"damaged", "test_kernels.h", "T", 80, {&image, 1}, gpu::test_headers};
  status = executor->load(damaged, 0, &kernel);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message.find("damaged"), std::string::npos) << status.message;
  // A launch that the driver refuses leaves the GPU usable.
  ASSERT_OK(executor->load(row("test_saxpy"), 512, &kernel));
  const SaxpyParams params{nullptr, nullptr, 0, 0};
  const gpu::Step too_wide[] = {launch_of(kernel, params, 100'000, 512)};
  status = executor->run(too_wide, nullptr);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message.find("100000"), std::string::npos) << status.message;
  const gpu::Step good[] = {launch_of(kernel, params, 128, 512)};
  EXPECT_TRUE(executor->run(good, nullptr).ok());
  EXPECT_CUDA(call(*driver_, "cuCtxSynchronize"));
}

TEST_F(GpuTest, PointerDevice) {
  Buffer<float> x(*driver_, x_);
  EXPECT_EQ(pointer_device(*driver_, x.data()), 0);
  EXPECT_EQ(pointer_device(*driver_, x.data() + 1), 0);
  EXPECT_EQ(pointer_device(*driver_, x_.data()), -1);
  EXPECT_EQ(pointer_device(*driver_, nullptr), -1);
}

}  // namespace
}  // namespace strobe::cuda
