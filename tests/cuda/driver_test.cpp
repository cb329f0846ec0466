// Machines without a usable driver: a refusal that says what is missing and what to do.
#include "cuda/driver.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda/executor.h"

namespace strobe::cuda {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

void expect_mentions(const api::Status& status, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(status.message.find(word), std::string::npos)
        << word << " is not in " << status.message;
  }
}

TEST(Driver, AbsentLibrary) {
  Driver driver;
  CaptureStderr();
  const api::Status status = open_driver("/nonexistent/libcuda.so.1", &driver);
  EXPECT_EQ(GetCapturedStderr(), "");
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  EXPECT_EQ(status.argument, "device");
  expect_mentions(status, {"/nonexistent/libcuda.so.1", "Install the driver"});
}

TEST(Driver, TooOldNamesBothVersions) {
  Driver driver;
  const api::Status status = open_driver(STROBE_OLD_DRIVER, &driver);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  expect_mentions(status, {"CUDA 11.4", "CUDA 12.0", "Update the driver"});
}

TEST(Driver, LibraryThatIsNoDriver) {
  Driver driver;
  const api::Status status = open_driver("libc.so.6", &driver);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  expect_mentions(status, {"cuInit"});
}

TEST(Driver, VersionText) {
  EXPECT_EQ(version_text(12040), "12.4");
  EXPECT_EQ(version_text(13000), "13.0");
}

// Where there is no GPU, every entry refuses in the same words, again and again.
TEST(Driver, WithoutGpuEverythingRefuses) {
  const Driver* cuda = nullptr;
  const api::Status first = driver(&cuda);
  if (first.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(cuda, nullptr);
  EXPECT_EQ(first.code, STROBE_UNSUPPORTED);
  EXPECT_EQ(driver(&cuda).message, first.message);
  int count = -1;
  EXPECT_EQ(device_count(&count).message, first.message);
  EXPECT_EQ(count, 0);
  DeviceFacts facts;
  EXPECT_EQ(device_facts(0, &facts).message, first.message);
  std::unique_ptr<CudaExecutor> executor;
  EXPECT_EQ(CudaExecutor::create(0, ImageSource::kAutomatic, &executor).message, first.message);
  EXPECT_EQ(executor, nullptr);
}

}  // namespace
}  // namespace strobe::cuda
