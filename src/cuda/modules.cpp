#include "cuda/modules.h"

#include <fmt/format.h>

#include <cstring>

#include "jit/compile.h"

namespace strobe::cuda {
namespace {

api::Status not_embedded(const gpu::Row& row, const char* wanted, int capability) {
  return api::unsupported(
      "overrides",
      fmt::format("overrides asks for a {} of kernel {}, but this library has none for compute "
                  "capability {}.{}. Leave the choice to Strobe.",
                  wanted, row.name, capability / 10, capability % 10));
}

const gpu::Image* embedded(const gpu::Row& row, int capability, ImageSource source) {
  if (source == ImageSource::kNvrtc) return nullptr;
  if (source == ImageSource::kPtx) {
    for (const gpu::Image& image : row.images) {
      if (image.kind == gpu::ImageKind::kPtx && image.arch <= capability && image.bytes() > 0) {
        return &image;
      }
    }
    return nullptr;
  }
  const gpu::Image* image = gpu::choose_image(row, capability);
  if (image == nullptr || image->bytes() == 0) return nullptr;
  if (source == ImageSource::kCubin && image->kind != gpu::ImageKind::kCubin) return nullptr;
  return image;
}

}  // namespace

api::Status find_code(const gpu::Row& row, int capability, ImageSource source, Code* code) {
  if (!gpu::row_fits(row, capability)) {
    return api::unsupported(
        "device",
        fmt::format("device has compute capability {}.{}, but kernel {} is for {}.{}. "
                    "Leave the choice of the kernel to Strobe.",
                    capability / 10, capability % 10, row.name, row.arch / 10, row.arch % 10));
  }
  if (const gpu::Image* image = embedded(row, capability, source)) {
    code->image = image->begin;
    code->origin = image->kind == gpu::ImageKind::kPtx ? "ptx" : "cubin";
    code->toolkit = gpu::toolkit_version() * 100;
    return {};
  }
  if (source == ImageSource::kPtx) return not_embedded(row, "PTX image", capability);
  if (source == ImageSource::kCubin) return not_embedded(row, "cubin", capability);

  jit::Compiled compiled;
  if (api::Status status = jit::compile(row, capability, &compiled); !status.ok()) return status;
  code->compiled = std::move(compiled.image);
  code->image = code->compiled.data();
  code->origin = compiled.from_cache ? "nvrtc (cached)" : "nvrtc";
  code->toolkit = compiled.nvrtc_version;
  return {};
}

api::Status load_code(const Driver& driver, const gpu::Row& row, const Code& code, Kernel* kernel) {
  char log[4096] = "";
  JitOption options[] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};  // sizes travel as pointers
  Library library = nullptr;
  Error error = driver.library_load(&library, code.image, options, values, 2, nullptr, nullptr, 0);
  log[sizeof(log) - 1] = '\0';
  if (error == kSuccess) {
    error = driver.library_kernel(kernel, library, row.name);
    if (error == kSuccess) return {};
    driver.library_unload(library);
    return failure(driver, error, fmt::format("entry point of kernel {}", row.name));
  }
  const bool refused =
      error == kErrorPtxVersion || error == kErrorNoBinary || error == kErrorInvalidImage;
  if (refused && code.toolkit > driver.version) {
    return api::unsupported(
        "device",
        fmt::format("device has a driver for CUDA {}, but kernel {} ({}) was built by CUDA {}: {}. "
                    "Update the driver, or build Strobe with CUDA {} or older.",
                    version_text(driver.version), row.name, code.origin, version_text(code.toolkit),
                    driver.describe(error), version_text(driver.version)));
  }
  std::string what = fmt::format("loading kernel {} ({})", row.name, code.origin);
  if (log[0] != '\0') what += fmt::format(" [{}]", log);
  return failure(driver, error, what);
}

}  // namespace strobe::cuda
