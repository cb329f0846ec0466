#include "harness/cuda_memory.h"

#include <dlfcn.h>

#include <cstdint>

namespace strobe::harness {
namespace {

constexpr std::size_t kAlignment = 256;

// Signatures of the driver's functions, by their exported names.
using Init = int (*)(unsigned);
using DeviceGet = int (*)(int*, int);
using Retain = int (*)(void**, int);
using SetCurrent = int (*)(void*);
using Allocate = int (*)(unsigned long long*, std::size_t);
using Free = int (*)(unsigned long long);
using ToDevice = int (*)(unsigned long long, const void*, std::size_t);
using ToHost = int (*)(void*, unsigned long long, std::size_t);
using Synchronize = int (*)();

}  // namespace

template <class... Parameters, class... Values>
bool CudaMemory::call(const char* name, int (*)(Parameters...), Values... values) {
  if (!fault_.empty()) return false;
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library_, name));
  const int error = function == nullptr ? -1 : function(values...);
  if (error != 0) fault_ = std::string(name) + " returned " + std::to_string(error);
  return error == 0;
}

CudaMemory::CudaMemory(int device_index) {
  library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays: the library has it open too
  if (library_ == nullptr) {
    fault_ = "libcuda.so.1 cannot be loaded";
    return;
  }
  void* context = nullptr;
  call("cuInit", Init{}, 0u);
  call("cuDeviceGet", DeviceGet{}, &device_, device_index);
  call("cuDevicePrimaryCtxRetain", Retain{}, &context, device_);
  call("cuCtxSetCurrent", SetCurrent{}, context);
}

CudaMemory::~CudaMemory() {
  fault_.clear();
  for (const Range& range : ranges_) call("cuMemFree_v2", Free{}, range.allocation);
}

void CudaMemory::add(void* host, std::size_t bytes) {
  const std::size_t shift = reinterpret_cast<std::uintptr_t>(host) % kAlignment;
  Range range = {static_cast<char*>(host), bytes, 0, 0};
  if (!call("cuMemAlloc_v2", Allocate{}, &range.allocation, bytes + shift)) return;
  range.begin = range.allocation + shift;
  ranges_.push_back(range);
  call("cuMemcpyHtoD_v2", ToDevice{}, range.begin, host, bytes);
}

void* CudaMemory::translate(const void* host) const {
  const auto at = reinterpret_cast<std::uintptr_t>(host);
  for (const Range& range : ranges_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.host);
    if (at >= begin && at < begin + range.bytes) {
      return reinterpret_cast<void*>(range.begin + (at - begin));
    }
  }
  return nullptr;
}

void CudaMemory::read_back() {
  call("cuCtxSynchronize", Synchronize{});
  for (const Range& range : ranges_) {
    call("cuMemcpyDtoH_v2", ToHost{}, static_cast<void*>(range.host), range.begin, range.bytes);
  }
}

}  // namespace strobe::harness
