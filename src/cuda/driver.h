// The CUDA driver, libcuda.so.1, opened at run time: a library built here loads on machines without
// it. The declarations are our own; tests/cuda/driver_abi_test.cpp compares them with cuda.h.
#ifndef STROBE_SRC_CUDA_DRIVER_H_
#define STROBE_SRC_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "api/status.h"

namespace strobe::cuda {

// The driver's opaque handles and scalars.
using Error = int;         // CUresult
using DeviceHandle = int;  // CUdevice
using DevicePointer = unsigned long long;
using Context = struct ContextOpaque*;
using Stream = struct StreamOpaque*;
using Library = struct LibraryOpaque*;
using Kernel = struct KernelOpaque*;
using Function = struct FunctionOpaque*;

enum : Error {
  kSuccess = 0,
  kErrorOutOfMemory = 2,
  kErrorStubLibrary = 34,
  kErrorNoDevice = 100,
  kErrorInvalidImage = 200,
  kErrorNoBinary = 209,
  kErrorPtxVersion = 222,
};

enum DeviceAttribute : int {
  kClockKhz = 13,
  kMultiprocessors = 16,
  kMemoryClockKhz = 36,
  kMemoryBusBits = 37,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedBytesPerMultiprocessor = 81,
  kSharedBytesPerBlock = 97,  // with the function attribute raised
};

enum FunctionAttribute : int {
  kStaticSharedBytes = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicSharedBytes = 8,
  kNonPortableCluster = 14,
};

enum PointerAttribute : int { kMemoryType = 2, kDeviceOrdinal = 9 };
enum : unsigned { kMemoryTypeDevice = 2 };
enum CaptureMode : int { kCaptureRelaxed = 2 };
enum JitOption : int { kJitErrorLog = 5, kJitErrorLogBytes = 6 };

// Streams that stand for one of the current context. NULL is the legacy default stream.
inline const Stream kLegacyStream = reinterpret_cast<Stream>(0x1);
inline const Stream kPerThreadStream = reinterpret_cast<Stream>(0x2);

enum LaunchAttributeId : int { kClusterDimension = 4, kProgrammaticSerialization = 6 };

struct LaunchAttribute {  // CUlaunchAttribute
  LaunchAttributeId id;
  char padding[4];
  union {
    char reserved[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_serialization;
  } value;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// member, symbol, signature. All of them exist since CUDA 12.0.
#define STROBE_DRIVER_FUNCTIONS(X)                                                                 \
  X(init, "cuInit", Error(unsigned flags))                                                         \
  X(error_name, "cuGetErrorName", Error(Error, const char**))                                      \
  X(error_string, "cuGetErrorString", Error(Error, const char**))                                  \
  X(device_count, "cuDeviceGetCount", Error(int*))                                                 \
  X(device_get, "cuDeviceGet", Error(DeviceHandle*, int index))                                    \
  X(device_name, "cuDeviceGetName", Error(char*, int size, DeviceHandle))                          \
  X(device_memory, "cuDeviceTotalMem_v2", Error(std::size_t*, DeviceHandle))                       \
  X(device_attribute, "cuDeviceGetAttribute", Error(int*, DeviceAttribute, DeviceHandle))          \
  X(primary_retain, "cuDevicePrimaryCtxRetain", Error(Context*, DeviceHandle))                     \
  X(context_push, "cuCtxPushCurrent_v2", Error(Context))                                           \
  X(context_pop, "cuCtxPopCurrent_v2", Error(Context*))                                            \
  X(context_current, "cuCtxGetCurrent", Error(Context*))                                           \
  X(context_device, "cuCtxGetDevice", Error(DeviceHandle*))                                        \
  X(stream_context, "cuStreamGetCtx", Error(Stream, Context*))                                     \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", Error(CaptureMode*))               \
  X(library_load, "cuLibraryLoadData",                                                             \
    Error(Library*, const void* image, JitOption*, void** jit_values, unsigned jit_count, int*,    \
          void** values, unsigned count))                                                          \
  X(library_unload, "cuLibraryUnload", Error(Library))                                             \
  X(library_kernel, "cuLibraryGetKernel", Error(Kernel*, Library, const char* name))               \
  X(kernel_function, "cuKernelGetFunction", Error(Function*, Kernel))                              \
  X(kernel_attribute, "cuKernelGetAttribute",                                                      \
    Error(int*, FunctionAttribute, Kernel, DeviceHandle))                                          \
  X(kernel_set_attribute, "cuKernelSetAttribute",                                                  \
    Error(FunctionAttribute, int value, Kernel, DeviceHandle))                                     \
  X(launch, "cuLaunchKernelEx", Error(const LaunchConfig*, Function, void** params, void** extra)) \
  X(memset8_async, "cuMemsetD8Async", Error(DevicePointer, unsigned char, std::size_t, Stream))    \
  X(copy_async, "cuMemcpyDtoDAsync_v2",                                                            \
    Error(DevicePointer to, DevicePointer from, std::size_t, Stream))                              \
  X(pointer_attribute, "cuPointerGetAttribute", Error(void*, PointerAttribute, DevicePointer))

// The functions, all present, and what the driver says of itself.
struct Driver {
  template <class Signature>
  using FunctionOf = Signature*;
#define STROBE_DECLARE(member, symbol, ...) FunctionOf<__VA_ARGS__> member = nullptr;
  STROBE_DRIVER_FUNCTIONS(STROBE_DECLARE)
#undef STROBE_DECLARE
  Error (*function_load)(Function) = nullptr;  // cuFuncLoad: since 12.4, else null
  int version = 0;                             // of the CUDA that it supports: 12040 is 12.4
  void* handle = nullptr;                      // of the shared library

  // "CUDA_ERROR_INVALID_VALUE (invalid argument)"
  std::string describe(Error error) const;
};

// Opens and initialises the driver at the first call; later calls give the same answer. Says why
// not where it is absent, too old or finds no GPU. The environment variable STROBE_LIBCUDA, a path,
// names another library. A process that forks after this cannot use CUDA in the child (a limit of
// CUDA).
api::Status driver(const Driver** driver);
// The same without the memory, for tests; library: null for the default.
api::Status open_driver(const char* library, Driver* driver);

// 12040 as "12.4".
std::string version_text(int version);

// Any failure of the driver while doing `what`: out of memory, or an internal error.
api::Status failure(const Driver& driver, Error error, const std::string& what);

// Facts of one GPU; read once, so asking again is cheap.
struct DeviceFacts {
  int index = 0;
  DeviceHandle handle = 0;
  std::string name;
  int capability = 0;  // major * 10 + minor
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // the largest dynamic size that a kernel may ask for
  int shared_bytes_per_multiprocessor = 0;
  int l2_bytes = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  std::size_t memory_bytes = 0;
};

api::Status device_count(int* count);
api::Status device_facts(int index, DeviceFacts* facts);

// The GPU on which a pointer can be read, or -1 where it is not device memory. Managed memory
// counts as device memory.
int pointer_device(const Driver& driver, const void* pointer);

// Makes a context current for a scope, and puts back the caller's.
class ContextGuard {
 public:
  ContextGuard(const Driver& driver, Context context)
      : driver_(driver), error_(driver.context_push(context)) {}
  ~ContextGuard() {
    Context ignored;
    if (error_ == kSuccess) driver_.context_pop(&ignored);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

  Error error() const { return error_; }

 private:
  const Driver& driver_;
  Error error_;
};

}  // namespace strobe::cuda

#endif  // STROBE_SRC_CUDA_DRIVER_H_
