// NVRTC itself, through the cache. Skipped where it is not installed.
#include "jit/compile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "jit/cache.h"
#include "jit/nvrtc.h"
#include "scratch.h"

namespace strobe::jit {
namespace {

class CompileTest : public testing::Test {
 protected:
  void SetUp() override {
    const api::Status status = nvrtc(&nvrtc_);
    if (!status.ok()) GTEST_SKIP() << status.message;
  }

  static Unit unit(const std::string& body = "*p = kAnswer;") {
    static const std::string kText =
        "constexpr int answer() { return 42; }\n#define kAnswer answer()\n";
    static const gpu::Header kHeaders[] = {{"some/header.h", kText.c_str(), kText.size()}};
    return {"kernel",
            "#include \"some/header.h\"\nextern \"C\" __global__ void f(int* p) { " + body + " }\n",
            kHeaders, 80, "sm_80"};
  }
  static Compiled good(const Unit& unit) {
    Compiled compiled;
    const api::Status status = compile(unit, &compiled);
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_GT(compiled.image.size(), 100u);
    return compiled;
  }
  std::filesystem::path only_entry(const std::string& folder) {
    const auto files = files_in(folder);
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? std::filesystem::path() : files[0];
  }

  const Nvrtc* nvrtc_ = nullptr;
  Scratch scratch_;
  Variable folder_{"STROBE_CACHE_DIR", scratch_.path("cache").c_str()};
};

TEST_F(CompileTest, CubinThenCacheHit) {
  const Compiled first = good(unit());
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(first.cached);
  EXPECT_EQ(std::memcmp(first.image.data(), "\177ELF", 4), 0);
  EXPECT_EQ(first.nvrtc_version, nvrtc_->version);
  const Compiled second = good(unit());
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.image, first.image);
}

// What the cache returns is what is in the file: a hit does not compile.
TEST_F(CompileTest, HitComesFromTheFile) {
  good(unit());
  const std::filesystem::path entry = only_entry(scratch_.path("cache"));
  const std::vector<unsigned char> planted = {'p', 'l', 'a', 'n', 't', 'e', 'd'};
  Digest key;
  std::memcpy(key.data(), read_file(entry).data() + 16, key.size());
  ASSERT_TRUE(cache_write(entry.string(), key, planted));
  Compiled compiled;
  ASSERT_TRUE(compile(unit(), &compiled).ok());
  EXPECT_EQ(compiled.image, planted);
}

TEST_F(CompileTest, CorruptEntryIsCompiledAnew) {
  const Compiled first = good(unit());
  const std::filesystem::path entry = only_entry(scratch_.path("cache"));
  std::string text = read_file(entry);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  write_file(entry, text);
  const Compiled second = good(unit());
  EXPECT_FALSE(second.from_cache);
  EXPECT_EQ(second.image, first.image);
  EXPECT_TRUE(good(unit()).from_cache) << "the entry was mended";
}

// Each thing that the code depends on has its own entry.
TEST_F(CompileTest, KeyHoldsEverything) {
  good(unit());
  Unit source = unit("*p = 1;");
  EXPECT_FALSE(good(source).from_cache);
  Unit target = unit();
  target.target = "sm_90";
  EXPECT_FALSE(good(target).from_cache);
  Unit arch = unit();
  arch.source_arch = 90;
  EXPECT_FALSE(good(arch).from_cache);
  const gpu::Header other[] = {{"some/header.h", "#define kAnswer 43\n", 19}};
  Unit header = unit();
  header.headers = other;
  EXPECT_FALSE(good(header).from_cache);
  EXPECT_EQ(files_in(scratch_.path("cache")).size(), 5u);
  EXPECT_TRUE(good(unit()).from_cache);
}

TEST_F(CompileTest, ChangedFolderStartsEmpty) {
  good(unit());
  const Variable elsewhere("STROBE_CACHE_DIR", scratch_.path("elsewhere").c_str());
  EXPECT_FALSE(good(unit()).from_cache);
  EXPECT_TRUE(good(unit()).from_cache);
}

TEST_F(CompileTest, UnwritableFolderCompilesEachTime) {
  write_file(scratch_.path("file"), "");
  const Variable unwritable("STROBE_CACHE_DIR", scratch_.path("file/cache").c_str());
  for (int i = 0; i < 2; ++i) {
    const Compiled compiled = good(unit());
    EXPECT_FALSE(compiled.from_cache);
    EXPECT_FALSE(compiled.cached);
  }
}

TEST_F(CompileTest, PtxEndsInZero) {
  Unit ptx = unit();
  ptx.target = "compute_80";
  const Compiled compiled = good(ptx);
  EXPECT_EQ(compiled.kind, gpu::ImageKind::kPtx);
  EXPECT_EQ(compiled.image.back(), 0);
  EXPECT_NE(std::string(compiled.image.begin(), compiled.image.end()).find(".target sm_80"),
            std::string::npos);
  EXPECT_EQ(good(ptx).kind, gpu::ImageKind::kPtx) << "from the cache";
}

TEST_F(CompileTest, FailureCarriesTheLogAndIsNotCached) {
  Compiled compiled;
  const api::Status status = compile(unit("undeclared = 1;"), &compiled);
  EXPECT_EQ(status.code, STROBE_INTERNAL);
  for (const char* word : {"kernel.cu(2)", "undeclared", "sm_80"}) {
    EXPECT_NE(status.message.find(word), std::string::npos) << word << ": " << status.message;
  }
  EXPECT_TRUE(files_in(scratch_.path("cache")).empty());
}

// A file in the working folder that has a header's name must not be taken for it.
TEST_F(CompileTest, WorkingFolderIsNotSearched) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directories(scratch_.path("some"));
  write_file(scratch_.path("some/header.h"), "#error the file was read\n");
  write_file(scratch_.path("other.h"), "\n");
  std::filesystem::current_path(scratch_.path());
  good(unit());
  Compiled compiled;
  Unit foreign = unit();
  foreign.source += "#include \"other.h\"\n";
  EXPECT_FALSE(compile(foreign, &compiled).ok()) << "a file that is no embedded header was read";
  std::filesystem::current_path(before);
}

TEST_F(CompileTest, TargetsFollowTheGpu) {
  const int known[] = {80, 86, 90, 100};
  const gpu::Row general{"r", "h", "T", 80, {}};
  EXPECT_EQ(unit_of(general, 86, known).target, "sm_86");
  EXPECT_EQ(unit_of(general, 90, known).target, "sm_90");
  EXPECT_EQ(unit_of(general, 120, known).target, "compute_80");  // NVRTC older than the GPU
  const gpu::Row hopper{"r", "h", "T", 90, {}};
  EXPECT_EQ(unit_of(hopper, 90, known).target, "sm_90a");
}

// Rows of the library: what a library without nvcc does. One row of each header; all of them, which
// takes long, with STROBE_SLOW=1.
TEST_F(CompileTest, RowsOfTheLibrary) {
  std::set<std::string> headers;
  for (const gpu::Row& row : gpu::rows()) {
    if (!headers.insert(row.header).second && std::getenv("STROBE_SLOW") == nullptr) continue;
    Compiled compiled;
    const api::Status status = compile(row, row.arch, &compiled);
    EXPECT_TRUE(status.ok()) << status.message;
  }
}

}  // namespace
}  // namespace strobe::jit
