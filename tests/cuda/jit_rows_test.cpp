// Rows in the shape of real ones through NVRTC, from embedded headers: what a library without nvcc
// does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "jit/compile.h"
#include "jit/nvrtc.h"
#include "test_rows.h"

namespace strobe::jit {
namespace {

class JitRows : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const Nvrtc* compiler = nullptr;
    const api::Status status = nvrtc(&compiler);
    if (!status.ok()) GTEST_SKIP() << status.message;
    if (!compiler->supports(GetParam())) GTEST_SKIP() << compiler->path << " does not know it";
    setenv("STROBE_CACHE_DIR", "", 1);  // really compile
  }
};

TEST_P(JitRows, Compile) {
  int fitting = 0;
  for (const gpu::Row& row : gpu::test_rows()) {
    if (!gpu::row_fits(row, GetParam())) continue;
    ++fitting;
    Compiled compiled;
    const api::Status status = compile(row, GetParam(), &compiled);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_FALSE(compiled.from_cache);
    EXPECT_EQ(compiled.kind, gpu::ImageKind::kCubin);
    const std::string text(compiled.image.begin(), compiled.image.end());
    EXPECT_EQ(text.substr(0, 4), "\177ELF");
    EXPECT_NE(text.find(row.name), std::string::npos) << "no entry point";
  }
  EXPECT_EQ(fitting, GetParam() == 90 ? 3 : 2);
}

INSTANTIATE_TEST_SUITE_P(Capability, JitRows, testing::Values(80, 86, 90, 100, 120));

}  // namespace
}  // namespace strobe::jit
