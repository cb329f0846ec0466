// Compiles rows at run time by NVRTC, from the headers that the library carries, through the cache
// on disk. Needs no GPU.
#ifndef STROBE_SRC_JIT_COMPILE_H_
#define STROBE_SRC_JIT_COMPILE_H_

#include <span>
#include <string>
#include <vector>

#include "api/status.h"
#include "gpu/rows.h"

namespace strobe::jit {

// One translation unit for one target.
struct Unit {
  std::string name;    // for messages and file names
  std::string source;  // its text
  std::span<const gpu::Header> headers;
  int source_arch = 80;  // STROBE_ARCH
  std::string target;    // "sm_90", "sm_90a": a cubin; "compute_80": PTX
};

struct Compiled {
  std::vector<unsigned char> image;  // for the driver; PTX with its final 0
  gpu::ImageKind kind = gpu::ImageKind::kCubin;
  int nvrtc_version = 0;
  bool from_cache = false;
  bool cached = false;  // it is in the cache now
};

// Machine code for a GPU of that compute capability (major * 10 + minor); PTX where NVRTC does not
// know it yet. A failure carries the compiler's log.
api::Status compile(const gpu::Row& row, int capability, Compiled* compiled);
api::Status compile(const Unit& unit, Compiled* compiled);

// The unit of a row; for an NVRTC that knows these architectures.
Unit unit_of(const gpu::Row& row, int capability, std::span<const int> supported);

}  // namespace strobe::jit

#endif  // STROBE_SRC_JIT_COMPILE_H_
