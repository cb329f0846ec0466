// From a row to code that the driver has loaded.
#ifndef STROBE_SRC_CUDA_MODULES_H_
#define STROBE_SRC_CUDA_MODULES_H_

#include <vector>

#include "cuda/driver.h"
#include "cuda/executor.h"
#include "gpu/rows.h"

namespace strobe::cuda {

// Code of a row for one GPU, and where it came from.
struct Code {
  const void* image = nullptr;
  const char* origin = "";              // as LoadedKernel::image
  int toolkit = 0;                      // the CUDA version that made it, as Driver::version counts
  std::vector<unsigned char> compiled;  // owns the image if it was compiled here
};

// Finds the embedded image that `source` asks for, or compiles the row.
api::Status find_code(const gpu::Row& row, int capability, ImageSource source, Code* code);

// Loads it and finds the entry point. A refusal for its age names both versions.
api::Status load_code(const Driver& driver, const gpu::Row& row, const Code& code, Kernel* kernel);

}  // namespace strobe::cuda

#endif  // STROBE_SRC_CUDA_MODULES_H_
