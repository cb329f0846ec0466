// Where NVRTC is looked for, and what is said if it is nowhere.
#include <gtest/gtest.h>

#include <algorithm>

#include "jit/nvrtc.h"
#include "jit/nvrtc_search.h"
#include "scratch.h"

namespace strobe::jit {
namespace {

bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void touch(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, "");
}

TEST(NvrtcSearch, ToolkitsAndPythonEnvironments) {
  const Scratch scratch;
  const std::string toolkit = scratch.path("toolkit/lib64/libnvrtc.so.12");
  const std::string one =
      scratch.path("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string each =
      scratch.path("conda/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string path =
      scratch.path("other/lib/python3.13/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  for (const std::string& file : {toolkit, one, each, path}) touch(file);
  touch(scratch.path("other/bin/python3"));
  std::filesystem::permissions(scratch.path("other/bin/python3"), std::filesystem::perms::all);

  const Variable forced("STROBE_NVRTC", nullptr);
  const Variable home("CUDA_HOME", scratch.path("toolkit").c_str());
  const Variable venv("VIRTUAL_ENV", scratch.path("venv").c_str());
  const Variable conda("CONDA_PREFIX", scratch.path("conda").c_str());
  const Variable paths("PATH", ("/nonexistent:" + scratch.path("other/bin")).c_str());
  const std::vector<std::string> found = nvrtc_search().candidates;
  EXPECT_EQ(found.at(0), "libnvrtc.so.13") << "the loader's path comes first";
  for (const std::string& file : {toolkit, one, each, path}) EXPECT_TRUE(has(found, file)) << file;
}

TEST(NvrtcSearch, ForcedPathIsTheOnlyOne) {
  const Variable forced("STROBE_NVRTC", "/some/libnvrtc.so.13");
  EXPECT_EQ(nvrtc_search().candidates, std::vector<std::string>{"/some/libnvrtc.so.13"});
}

TEST(NvrtcSearch, AbsentNamesWhatWasSearched) {
  const Variable forced("STROBE_NVRTC", "/nonexistent/libnvrtc.so.13");
  Nvrtc nvrtc;
  const api::Status status = open_nvrtc(&nvrtc);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  for (const char* word : {"/nonexistent/libnvrtc.so.13", "pip install", "STROBE_NVRTC"}) {
    EXPECT_NE(status.message.find(word), std::string::npos) << word << ": " << status.message;
  }
}

TEST(NvrtcSearch, OtherLibraryIsRefused) {
  const Variable forced("STROBE_NVRTC", "libc.so.6");
  Nvrtc nvrtc;
  const api::Status status = open_nvrtc(&nvrtc);
  EXPECT_EQ(status.code, STROBE_UNSUPPORTED);
  EXPECT_NE(status.message.find("nvrtcVersion"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace strobe::jit
