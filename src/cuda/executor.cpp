#include "cuda/executor.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "cuda/modules.h"

namespace strobe::cuda {

struct CudaExecutor::LoadedRow : gpu::LoadedKernel {
  Kernel kernel = nullptr;
  std::string name, header, type;  // what `row` points to: the caller's row may go away
  std::uint32_t shared_bytes = 0;  // its attribute
};

struct CudaExecutor::Device {
  const Driver* driver = nullptr;
  DeviceFacts facts;
  Context primary = nullptr;
  std::mutex mutex;  // guards what follows
  std::map<std::string, std::unique_ptr<LoadedRow>> loaded;

  api::Status load(const gpu::Row& row, ImageSource source, LoadedRow* loaded) const;
  api::Status read_attributes(LoadedRow* loaded) const;
  api::Status raise_shared_bytes(std::uint32_t shared_bytes, LoadedRow* loaded) const;
};

namespace {

// Lets a plan be made while some stream of this process is being captured.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  ~RelaxedCapture() { driver_.exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CaptureMode mode_ = kCaptureRelaxed;  // then the one before
};

DevicePointer address(const void* pointer) { return reinterpret_cast<DevicePointer>(pointer); }

}  // namespace

api::Status CudaExecutor::device(int index, Device** device) {
  static std::mutex mutex;
  static auto* devices = new std::map<int, std::unique_ptr<Device>>;  // see executor.h, Lifetime
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& slot = (*devices)[index];
  if (slot == nullptr) {
    auto made = std::make_unique<Device>();
    if (api::Status status = driver(&made->driver); !status.ok()) return status;
    if (api::Status status = device_facts(index, &made->facts); !status.ok()) return status;
    const Error error = made->driver->primary_retain(&made->primary, made->facts.handle);
    if (error != kSuccess) {
      return failure(*made->driver, error, fmt::format("primary context of GPU {}", index));
    }
    slot = std::move(made);
  }
  *device = slot.get();
  return {};
}

api::Status CudaExecutor::create(int device_index, ImageSource source,
                                 std::unique_ptr<CudaExecutor>* executor) {
  Device* made = nullptr;
  if (api::Status status = device(device_index, &made); !status.ok()) return status;
  executor->reset(new CudaExecutor(*made, source));
  return {};
}

const DeviceFacts& CudaExecutor::facts() const { return device_.facts; }

api::Status CudaExecutor::Device::read_attributes(LoadedRow* loaded) const {
  int registers = 0;
  int local_bytes = 0;
  int static_bytes = 0;
  Error error = kSuccess;
  const auto read = [&](FunctionAttribute attribute, int* value) {
    if (error == kSuccess) {
      error = driver->kernel_attribute(value, attribute, loaded->kernel, facts.handle);
    }
  };
  read(kRegisters, &registers);
  read(kLocalBytes, &local_bytes);
  read(kStaticSharedBytes, &static_bytes);
  loaded->registers = registers;
  loaded->local_bytes = static_cast<std::size_t>(local_bytes);
  loaded->static_shared_bytes = static_cast<std::size_t>(static_bytes);
  return error == kSuccess ? api::Status{}
                           : failure(*driver, error, fmt::format("attributes of {}", loaded->name));
}

api::Status CudaExecutor::Device::raise_shared_bytes(std::uint32_t shared_bytes,
                                                     LoadedRow* loaded) const {
  if (shared_bytes <= loaded->shared_bytes) return {};
  const std::size_t most =
      static_cast<std::size_t>(facts.shared_bytes_per_block) - loaded->static_shared_bytes;
  if (shared_bytes > most) {
    return api::unsupported(
        "device", fmt::format("device is {} with {} bytes of shared memory for a block of kernel "
                              "{}, but it needs {}. Leave the choice of the kernel to Strobe.",
                              facts.name, most, loaded->name, shared_bytes));
  }
  const Error error = driver->kernel_set_attribute(
      kMaxDynamicSharedBytes, static_cast<int>(shared_bytes), loaded->kernel, facts.handle);
  if (error != kSuccess) {
    return failure(*driver, error,
                   fmt::format("{} bytes of shared memory for {}", shared_bytes, loaded->name));
  }
  loaded->shared_bytes = shared_bytes;
  return {};
}

// Loads into the primary context now what the driver would otherwise load at the first launch.
api::Status CudaExecutor::Device::load(const gpu::Row& row, ImageSource source,
                                       LoadedRow* loaded) const {
  Code code;
  if (api::Status status = find_code(row, facts.capability, source, &code); !status.ok()) {
    return status;
  }
  if (api::Status status = load_code(*driver, row, code, &loaded->kernel); !status.ok()) {
    return status;
  }
  Function function = nullptr;
  Error error = driver->kernel_function(&function, loaded->kernel);
  if (error == kSuccess && driver->function_load != nullptr) {
    error = driver->function_load(function);
  }
  if (error != kSuccess) return failure(*driver, error, fmt::format("loading {}", row.name));
  loaded->image = code.origin;
  loaded->name = row.name;
  loaded->header = row.header;
  loaded->type = row.type;
  loaded->row = row;
  loaded->row.name = loaded->name.c_str();
  loaded->row.header = loaded->header.c_str();
  loaded->row.type = loaded->type.c_str();
  loaded->row.images = {};
  return read_attributes(loaded);
}

api::Status CudaExecutor::load(const gpu::Row& row, std::uint32_t shared_bytes,
                               const gpu::LoadedKernel** kernel) {
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", row.name, row.header, row.type,
                                      row.arch, static_cast<int>(source_));
  const RelaxedCapture relaxed(*device_.driver);
  const ContextGuard guard(*device_.driver, device_.primary);
  if (guard.error() != kSuccess) {
    return failure(*device_.driver, guard.error(), "making the primary context current");
  }
  const std::lock_guard lock(device_.mutex);
  std::unique_ptr<LoadedRow>& slot = device_.loaded[key];
  if (slot == nullptr) {
    auto loaded = std::make_unique<LoadedRow>();
    if (api::Status status = device_.load(row, source_, loaded.get()); !status.ok()) return status;
    slot = std::move(loaded);
  }
  *kernel = slot.get();
  return device_.raise_shared_bytes(shared_bytes, slot.get());
}

api::Status CudaExecutor::enqueue(const gpu::Launch& launch, Stream stream) const {
  if (launch.grid == 0) return {};
  const auto& row = static_cast<const LoadedRow&>(*launch.kernel);
  std::array<LaunchAttribute, 2> attributes{};
  LaunchConfig config = {launch.grid,       1, 1, launch.block, 1, 1, launch.shared_bytes, stream,
                         attributes.data(), 0};
  if (launch.cluster > 1) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = kClusterDimension;
    attribute.value.cluster = {launch.cluster, 1, 1};
  }
  if (launch.overlap_previous) {
    LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = kProgrammaticSerialization;
    attribute.value.programmatic_serialization = 1;
  }
  void* params[] = {const_cast<void*>(launch.params)};
  // The driver takes a CUkernel for a CUfunction, and finds the one of the stream's context.
  const Error error =
      device_.driver->launch(&config, reinterpret_cast<Function>(row.kernel), params, nullptr);
  if (error == kSuccess) return {};
  return failure(
      *device_.driver, error,
      fmt::format("launch of kernel {} (grid {}, block {}, cluster {}, {} bytes of shared "
                  "memory)",
                  row.name, launch.grid, launch.block, launch.cluster, launch.shared_bytes));
}

api::Status CudaExecutor::enqueue(const gpu::Memset& memset, Stream stream) const {
  if (memset.bytes == 0) return {};
  const Error error =
      device_.driver->memset8_async(address(memset.to), memset.value, memset.bytes, stream);
  return error == kSuccess
             ? api::Status{}
             : failure(*device_.driver, error, fmt::format("setting {} bytes", memset.bytes));
}

api::Status CudaExecutor::enqueue(const gpu::Copy& copy, Stream stream) const {
  if (copy.bytes == 0) return {};
  const Error error =
      device_.driver->copy_async(address(copy.to), address(copy.from), copy.bytes, stream);
  return error == kSuccess
             ? api::Status{}
             : failure(*device_.driver, error, fmt::format("copying {} bytes", copy.bytes));
}

api::Status CudaExecutor::run(std::span<const gpu::Step> steps, void* stream) const {
  const Driver& driver = *device_.driver;
  const auto handle = static_cast<Stream>(stream);
  Context context = device_.primary;
  if (handle != nullptr && handle != kLegacyStream && handle != kPerThreadStream) {
    const Error error = driver.stream_context(handle, &context);
    if (error != kSuccess) return failure(driver, error, "context of the stream");
  }
  const ContextGuard guard(driver, context);
  if (guard.error() != kSuccess) {
    return failure(driver, guard.error(), "making the stream's context current");
  }
  if (context != device_.primary) {
    DeviceHandle owner = -1;
    const Error error = driver.context_device(&owner);
    if (error != kSuccess) return failure(driver, error, "device of the stream");
    if (owner != device_.facts.handle) {
      return api::invalid("stream",
                          fmt::format("stream is of GPU {}, but the plan was made for GPU {}. Pass "
                                      "a stream of that GPU, or plan for this one.",
                                      owner, device_.facts.index));
    }
  }
  for (const gpu::Step& step : steps) {
    api::Status status = std::visit([&](const auto& it) { return enqueue(it, handle); }, step);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace strobe::cuda
