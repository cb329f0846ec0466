// Many processes that compile the same kernel at the same time, with one cache.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "jit/compile.h"
#include "jit/nvrtc.h"
#include "scratch.h"

namespace strobe::jit {
namespace {

// In a child: compiles, and checks what came out. Exit status 77: there is no NVRTC.
int child() {
  const Unit unit{"many", "extern \"C\" __global__ void f(int* p) { *p = 1; }\n", {}, 80, "sm_80"};
  const Nvrtc* compiler = nullptr;
  if (!nvrtc(&compiler).ok()) return 77;
  for (int i = 0; i < 3; ++i) {
    Compiled compiled;
    if (!compile(unit, &compiled).ok() || compiled.image.size() < 100) return 1;
    if (i > 0 && !compiled.from_cache) return 2;
  }
  return 0;
}

int run_children(int count) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(child());
    children.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : children) {
    int status = -1;
    waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 255);
  }
  return worst;
}

TEST(JitProcesses, OneCache) {
  const Scratch scratch;
  const Variable folder("STROBE_CACHE_DIR", scratch.path("cache").c_str());
  const int worst = run_children(6);
  if (worst == 77) GTEST_SKIP() << "no NVRTC";
  EXPECT_EQ(worst, 0);
  EXPECT_EQ(files_in(scratch.path("cache")).size(), 1u);
}

// In a new process, for NVRTC may be loaded into this one already.
TEST(JitDeathTest, WithoutNvrtcTheReasonIsGiven) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Scratch scratch;
  const Variable folder("STROBE_CACHE_DIR", scratch.path("cache").c_str());
  const Variable absent("STROBE_NVRTC", "/nonexistent/libnvrtc.so.13");
  const auto compile_and_exit = [] {
    Compiled compiled;
    const api::Status status =
        compile(Unit{"k", "extern \"C\" __global__ void f() {}", {}, 80, "sm_80"}, &compiled);
    std::fprintf(stderr, "%s", status.message.c_str());
    std::exit(status.code == STROBE_UNSUPPORTED ? 0 : 1);
  };
  EXPECT_EXIT(compile_and_exit(), testing::ExitedWithCode(0), "/nonexistent/libnvrtc.so.13");
}

}  // namespace
}  // namespace strobe::jit
