#include "cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace strobe::cuda {
namespace {

constexpr int kOldestVersion = 12000;  // cuLibraryLoadData, cuLaunchKernelEx
constexpr const char* kDefaultLibrary = "libcuda.so.1";

api::Status no_driver(std::string message) {
  return api::unsupported("device", std::move(message));
}

api::Status too_old(int version) {
  return no_driver(fmt::format(
      "device is cuda, but the NVIDIA driver supports CUDA {}, and Strobe needs CUDA {} or newer. "
      "Update the driver to release 525 or newer.",
      version_text(version), version_text(kOldestVersion)));
}

api::Status load_functions(Driver* driver) {
  const char* missing = nullptr;
#define STROBE_LOAD(member, symbol, ...)                                                      \
  driver->member = reinterpret_cast<decltype(driver->member)>(dlsym(driver->handle, symbol)); \
  if (driver->member == nullptr && missing == nullptr) missing = symbol;
  STROBE_DRIVER_FUNCTIONS(STROBE_LOAD)
#undef STROBE_LOAD
  driver->function_load =
      reinterpret_cast<decltype(driver->function_load)>(dlsym(driver->handle, "cuFuncLoad"));
  if (missing == nullptr) return {};
  return no_driver(fmt::format(
      "device is cuda, but the NVIDIA driver (CUDA {}) has no function {}. Update the driver.",
      version_text(driver->version), missing));
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string Driver::describe(Error error) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(error, &name) != kSuccess || name == nullptr) {
    return fmt::format("CUDA error {}", error);
  }
  if (error_string(error, &text) != kSuccess || text == nullptr) text = "no description";
  return fmt::format("{} ({})", name, text);
}

api::Status open_driver(const char* library, Driver* driver) {
  const char* path = library != nullptr ? library : kDefaultLibrary;
  // Never closed: the driver has threads of its own.
  driver->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (driver->handle == nullptr) {
    const char* reason = dlerror();
    return no_driver(fmt::format(
        "device is cuda, but the NVIDIA driver's library {} cannot be loaded ({}). Install the "
        "driver, pass its library into the container, or plan for the CPU.",
        path, reason != nullptr ? reason : "no reason given"));
  }
  const auto get_version =
      reinterpret_cast<Error (*)(int*)>(dlsym(driver->handle, "cuDriverGetVersion"));
  if (get_version == nullptr || get_version(&driver->version) != kSuccess) driver->version = 0;
  if (driver->version != 0 && driver->version < kOldestVersion) return too_old(driver->version);
  if (api::Status status = load_functions(driver); !status.ok()) return status;

  const Error error = driver->init(0);
  if (error == kSuccess) return {};
  if (error == kErrorNoDevice) {
    return no_driver(fmt::format(
        "device is cuda, but the NVIDIA driver (CUDA {}) finds no GPU. Check nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or plan for the CPU.",
        version_text(driver->version)));
  }
  return no_driver(
      fmt::format("device is cuda, but the NVIDIA driver (CUDA {}) cannot be initialised: {}. "
                  "Check nvidia-smi; "
                  "a child of fork() cannot use CUDA after its parent did.",
                  version_text(driver->version), driver->describe(error)));
}

api::Status driver(const Driver** driver) {
  struct Opened {
    Driver driver;
    api::Status status;
  };
  static std::once_flag once;
  static Opened* opened;  // never destroyed: it outlives static destructors that use it
  std::call_once(once, [] {
    opened = new Opened;
    opened->status = open_driver(std::getenv("STROBE_LIBCUDA"), &opened->driver);
  });
  *driver = opened->status.ok() ? &opened->driver : nullptr;
  return opened->status;
}

api::Status failure(const Driver& driver, Error error, const std::string& what) {
  const std::string message = fmt::format("{}: {}", what, driver.describe(error));
  if (error == kErrorOutOfMemory) {
    return {STROBE_OUT_OF_MEMORY, "device",
            message + ". Free device memory or take a smaller problem."};
  }
  return {STROBE_INTERNAL, "device",
          message +
              ". CUDA also reports here what failed earlier on this GPU; to find out, run "
              "with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."};
}

api::Status device_count(int* count) {
  const Driver* cuda = nullptr;
  *count = 0;
  if (api::Status status = driver(&cuda); !status.ok()) return status;
  const Error error = cuda->device_count(count);
  return error == kSuccess ? api::Status{} : failure(*cuda, error, "cuDeviceGetCount");
}

namespace {

api::Status read_facts(int index, DeviceFacts* facts) {
  const Driver* cuda = nullptr;
  int count = 0;
  if (api::Status status = driver(&cuda); !status.ok()) return status;
  if (api::Status status = device_count(&count); !status.ok()) return status;
  if (index < 0 || index >= count) {
    return api::invalid(
        "device_index",
        fmt::format("device_index is {}, but there are {} GPUs. Pass 0 to {}; CUDA_VISIBLE_DEVICES "
                    "chooses which are seen.",
                    index, count, count - 1));
  }
  facts->index = index;
  Error error = cuda->device_get(&facts->handle, index);
  const auto read = [&](DeviceAttribute attribute, int* value) {
    if (error == kSuccess) error = cuda->device_attribute(value, attribute, facts->handle);
  };
  int major = 0;
  int minor = 0;
  read(kCapabilityMajor, &major);
  read(kCapabilityMinor, &minor);
  read(kMultiprocessors, &facts->multiprocessors);
  read(kSharedBytesPerBlock, &facts->shared_bytes_per_block);
  read(kSharedBytesPerMultiprocessor, &facts->shared_bytes_per_multiprocessor);
  read(kL2Bytes, &facts->l2_bytes);
  read(kClockKhz, &facts->clock_khz);
  read(kMemoryClockKhz, &facts->memory_clock_khz);
  read(kMemoryBusBits, &facts->memory_bus_bits);
  facts->capability = major * 10 + minor;
  char name[256] = "";
  if (error == kSuccess) error = cuda->device_name(name, sizeof(name), facts->handle);
  if (error == kSuccess) error = cuda->device_memory(&facts->memory_bytes, facts->handle);
  facts->name = name;
  return error == kSuccess ? api::Status{}
                           : failure(*cuda, error, fmt::format("facts of GPU {}", index));
}

}  // namespace

api::Status device_facts(int index, DeviceFacts* facts) {
  static std::mutex mutex;
  static auto* known = new std::map<int, DeviceFacts>;  // never destroyed, as the driver
  const std::lock_guard lock(mutex);
  auto it = known->find(index);
  if (it == known->end()) {
    DeviceFacts read;
    if (api::Status status = read_facts(index, &read); !status.ok()) return status;
    it = known->emplace(index, std::move(read)).first;
  }
  *facts = it->second;
  return {};
}

int pointer_device(const Driver& driver, const void* pointer) {
  const auto address = reinterpret_cast<DevicePointer>(pointer);
  unsigned type = 0;
  int device = -1;
  if (driver.pointer_attribute(&type, kMemoryType, address) != kSuccess ||
      type != kMemoryTypeDevice ||
      driver.pointer_attribute(&device, kDeviceOrdinal, address) != kSuccess) {
    return -1;
  }
  return device;
}

}  // namespace strobe::cuda
