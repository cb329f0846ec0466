// Runs launch lists on an NVIDIA GPU.
//
// Streams. A stream of any context of the plan's GPU is respected: the steps are enqueued there,
// and the caller's current context is untouched. NULL, and CU_STREAM_LEGACY, mean the legacy
// default stream of the primary context of the plan's GPU, whichever context is current;
// CU_STREAM_PER_THREAD the calling thread's default stream there. Any stream but the legacy one may
// be captured into a CUDA graph: run() only launches, sets and copies. Rows are loaded into the
// primary context at plan time; in another context the driver itself loads a row at its first
// launch.
//
// Lifetime. The primary context and the loaded rows stay for the life of the process: no order of
// static destructors is safe for calls into the driver.
#ifndef STROBE_SRC_CUDA_EXECUTOR_H_
#define STROBE_SRC_CUDA_EXECUTOR_H_

#include <memory>

#include "cuda/driver.h"
#include "gpu/launch.h"

namespace strobe::cuda {

// Where the code of a row comes from. kAutomatic: a cubin of the GPU's family, else PTX, else
// run-time compilation. The others force one way, for tests and study.
enum class ImageSource { kAutomatic, kCubin, kPtx, kNvrtc };

class CudaExecutor final : public gpu::Executor {
 public:
  // Fails where there is no driver or no such GPU.
  static api::Status create(int device_index, ImageSource source,
                            std::unique_ptr<CudaExecutor>* executor);

  api::Status load(const gpu::Row& row, std::uint32_t shared_bytes,
                   const gpu::LoadedKernel** kernel) override;
  api::Status run(std::span<const gpu::Step> steps, void* stream) const override;

  const DeviceFacts& facts() const;

 private:
  struct Device;
  struct LoadedRow;
  CudaExecutor(Device& device, ImageSource source) : device_(device), source_(source) {}

  // The one record of a GPU, made at first use and never destroyed.
  static api::Status device(int index, Device** device);
  api::Status enqueue(const gpu::Launch& launch, Stream stream) const;
  api::Status enqueue(const gpu::Memset& memset, Stream stream) const;
  api::Status enqueue(const gpu::Copy& copy, Stream stream) const;

  Device& device_;
  ImageSource source_;
};

}  // namespace strobe::cuda

#endif  // STROBE_SRC_CUDA_EXECUTOR_H_
