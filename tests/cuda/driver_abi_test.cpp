// Our declarations of the driver (cuda/driver.h) against the toolkit's cuda.h.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "cuda/driver.h"

namespace {

namespace ours = strobe::cuda;

// Handles are pointers, enums are ints and size_t is size_t on both sides.
template <class T>
struct Abi {
  using type = T;
};
template <class T>
requires std::is_enum_v<T>
struct Abi<T> {
  using type = int;
  static_assert(sizeof(T) == sizeof(int));
};
template <class T>
struct Abi<T*> {
  using type = void*;
};
template <class A, class B>
constexpr bool kSame = std::is_same_v<typename Abi<A>::type, typename Abi<B>::type>;

template <class Ours, class Theirs>
constexpr bool kSameSignature = false;
template <class R, class... A, class S, class... B>
constexpr bool kSameSignature<R (*)(A...), S (*)(B...)> = [] {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return kSame<R, S> && (kSame<A, B> && ...);
  }
  return false;
}();

#define SAME_SIGNATURE(member, function) \
  static_assert(kSameSignature<decltype(ours::Driver::member), decltype(&function)>)
SAME_SIGNATURE(init, cuInit);
SAME_SIGNATURE(error_name, cuGetErrorName);
SAME_SIGNATURE(error_string, cuGetErrorString);
SAME_SIGNATURE(device_count, cuDeviceGetCount);
SAME_SIGNATURE(device_get, cuDeviceGet);
SAME_SIGNATURE(device_name, cuDeviceGetName);
SAME_SIGNATURE(device_memory, cuDeviceTotalMem);
SAME_SIGNATURE(device_attribute, cuDeviceGetAttribute);
SAME_SIGNATURE(primary_retain, cuDevicePrimaryCtxRetain);
SAME_SIGNATURE(context_push, cuCtxPushCurrent);
SAME_SIGNATURE(context_pop, cuCtxPopCurrent);
SAME_SIGNATURE(context_current, cuCtxGetCurrent);
SAME_SIGNATURE(context_device, cuCtxGetDevice);
SAME_SIGNATURE(stream_context, cuStreamGetCtx);
SAME_SIGNATURE(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
SAME_SIGNATURE(library_load, cuLibraryLoadData);
SAME_SIGNATURE(library_unload, cuLibraryUnload);
SAME_SIGNATURE(library_kernel, cuLibraryGetKernel);
SAME_SIGNATURE(kernel_function, cuKernelGetFunction);
SAME_SIGNATURE(kernel_attribute, cuKernelGetAttribute);
SAME_SIGNATURE(kernel_set_attribute, cuKernelSetAttribute);
SAME_SIGNATURE(launch, cuLaunchKernelEx);
SAME_SIGNATURE(memset8_async, cuMemsetD8Async);
SAME_SIGNATURE(copy_async, cuMemcpyDtoDAsync);
SAME_SIGNATURE(pointer_attribute, cuPointerGetAttribute);
SAME_SIGNATURE(function_load, cuFuncLoad);

#define SAME_VALUE(a, b) static_assert(static_cast<int>(ours::a) == static_cast<int>(b))
SAME_VALUE(kSuccess, CUDA_SUCCESS);
SAME_VALUE(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kErrorStubLibrary, CUDA_ERROR_STUB_LIBRARY);
SAME_VALUE(kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kErrorInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(kErrorNoBinary, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(kErrorPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_VALUE(kClockKhz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME_VALUE(kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(kMemoryClockKhz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME_VALUE(kMemoryBusBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME_VALUE(kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_VALUE(kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(kSharedBytesPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME_VALUE(kSharedBytesPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(kStaticSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(kLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_VALUE(kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_VALUE(kMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(kNonPortableCluster, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME_VALUE(kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(kJitErrorLog, CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(kJitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME_VALUE(kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_VALUE(kProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

#define SAME_OFFSET(type, member, theirs, their_member) \
  static_assert(offsetof(ours::type, member) == offsetof(theirs, their_member))
static_assert(sizeof(ours::LaunchConfig) == sizeof(CUlaunchConfig));
SAME_OFFSET(LaunchConfig, grid_x, CUlaunchConfig, gridDimX);
SAME_OFFSET(LaunchConfig, block_x, CUlaunchConfig, blockDimX);
SAME_OFFSET(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_OFFSET(LaunchConfig, stream, CUlaunchConfig, hStream);
SAME_OFFSET(LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME_OFFSET(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
static_assert(sizeof(ours::LaunchAttribute) == sizeof(CUlaunchAttribute));
SAME_OFFSET(LaunchAttribute, id, CUlaunchAttribute, id);
SAME_OFFSET(LaunchAttribute, value.cluster, CUlaunchAttribute, value.clusterDim);
SAME_OFFSET(LaunchAttribute, value.programmatic_serialization, CUlaunchAttribute,
            value.programmaticStreamSerializationAllowed);

// The constants above are checked by the compiler; this is left for run time.
TEST(DriverAbi, SpecialStreams) {
  EXPECT_EQ(reinterpret_cast<void*>(ours::kLegacyStream), static_cast<void*>(CU_STREAM_LEGACY));
  EXPECT_EQ(reinterpret_cast<void*>(ours::kPerThreadStream),
            static_cast<void*>(CU_STREAM_PER_THREAD));
}

}  // namespace
