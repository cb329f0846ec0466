#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "jit/nvrtc_search.h"

namespace strobe::jit {
namespace {

constexpr int kOldestVersion = 12080;  // the oldest toolkit whose C++20 the kernels are tested with

// NVRTC opens libnvrtc-builtins.so.X.Y by name alone, which fails where its folder is not on the
// loader's path. A library that is already loaded satisfies that.
void load_builtins(const std::string& library) {
  for (const std::string& path : matching(folder_of(library), "libnvrtc-builtins.so.")) {
    dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

// Fills in everything; false, with the handle closed, if this library does not serve.
bool load(const std::string& path, Nvrtc* nvrtc, std::string* reason) {
  if (path.find('/') != std::string::npos) load_builtins(path);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    *reason = error != nullptr ? error : "no reason given";
    return false;
  }
  const char* missing = nullptr;
#define STROBE_LOAD(member, symbol, ...)                                            \
  nvrtc->member = reinterpret_cast<decltype(nvrtc->member)>(dlsym(handle, symbol)); \
  if (nvrtc->member == nullptr && missing == nullptr) missing = symbol;
  STROBE_NVRTC_FUNCTIONS(STROBE_LOAD)
#undef STROBE_LOAD
  int major = 0;
  int minor = 0;
  if (missing == nullptr) nvrtc->get_version(&major, &minor);
  nvrtc->version = major * 1000 + minor * 10;
  if (missing != nullptr || nvrtc->version < kOldestVersion) {
    *reason = missing != nullptr
                  ? fmt::format("{}: no function {}", path, missing)
                  : fmt::format("{}: version {}.{}, 12.8 or newer is needed", path, major, minor);
    dlclose(handle);
    return false;
  }
  int count = 0;
  if (nvrtc->arch_count(&count) == 0 && count > 0) {
    nvrtc->supported.resize(static_cast<std::size_t>(count));
    if (nvrtc->archs(nvrtc->supported.data()) != 0) nvrtc->supported.clear();
  }
  Dl_info info;
  const bool named = dladdr(reinterpret_cast<const void*>(nvrtc->get_version), &info) != 0;
  nvrtc->path = named && info.dli_fname != nullptr ? info.dli_fname : path;
  load_builtins(nvrtc->path);
  return true;
}

}  // namespace

bool Nvrtc::supports(int arch) const {
  return std::find(supported.begin(), supported.end(), arch) != supported.end();
}

api::Status open_nvrtc(Nvrtc* nvrtc) {
  const NvrtcSearch search = nvrtc_search();
  std::string reason;
  std::string first_reason;
  for (const std::string& path : search.candidates) {
    *nvrtc = {};
    if (load(path, nvrtc, &reason)) return {};
    if (first_reason.empty()) first_reason = reason;
  }
  *nvrtc = {};
  return api::unsupported(
      "device",
      fmt::format(
          "device needs a kernel that is compiled at run time, but no usable NVRTC (CUDA 12.8 "
          "or newer) was found in: {}{}. Install it (pip install nvidia-cuda-nvrtc, or the "
          "CUDA toolkit), or set STROBE_NVRTC to the path of libnvrtc.so.",
          fmt::join(search.places, ", "), first_reason.empty() ? "" : " (" + first_reason + ")"));
}

api::Status nvrtc(const Nvrtc** nvrtc) {
  static std::mutex mutex;
  static Nvrtc* opened = nullptr;  // never destroyed, never closed
  const std::lock_guard lock(mutex);
  if (opened == nullptr) {
    auto made = std::make_unique<Nvrtc>();
    if (api::Status status = open_nvrtc(made.get()); !status.ok()) return status;
    opened = made.release();
  }
  *nvrtc = opened;
  return {};
}

}  // namespace strobe::jit
