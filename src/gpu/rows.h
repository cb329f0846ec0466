// Kernel rows as host code sees them. A row is one specialised kernel: one line of a kernels.def,
// one entry point, found by its name. CMake generates the tables (cmake/StrobeKernels.cmake); a row
// for a problem that no table lists can be made at run time, without images.
#ifndef STROBE_SRC_GPU_ROWS_H_
#define STROBE_SRC_GPU_ROWS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strobe::gpu {

// A kernel header, embedded in the library for run-time compilation. `name` is what #include says;
// `text` ends with a 0 that `bytes` does not count.
struct Header {
  const char* name;
  const char* text;
  std::size_t bytes;
};

// src/core, src/isa, src/tile and src/kernels.
std::span<const Header> embedded_headers();

enum class ImageKind { kCubin, kPtx };

// Machine code or PTX of one row, ready for the driver: plain, or as a fat binary that holds
// nothing else (compressed).
struct Image {
  ImageKind kind = ImageKind::kCubin;
  int arch = 0;                          // 80, 90, 100: it was compiled for sm_80, sm_90a ...
  const unsigned char* begin = nullptr;  // PTX: a final 0 follows `end`
  const unsigned char* end = nullptr;    // begin == end: known to exist, but not in this program

  std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
};

struct Row {
  const char* name;    // of the row and of its entry point: [a-z][a-z0-9_]*
  const char* header;  // that defines the type
  const char* type;    // the kernel struct, e.g. "Fa2Fwd<Fa2FwdConfig{.head_dim = 128}>"
  int arch;            // STROBE_ARCH of its source: 80 runs on that and all newer GPUs; 90 and 100
                       // use instructions that only that very architecture has (sm_90a, sm_100a)
  std::span<const Image> images;  // empty: built without nvcc
  std::span<const Header> (*headers)() = embedded_headers;

  bool arch_specific() const { return arch >= 90; }
};

// Every row of src/cuda/kernels.def.
std::span<const Row> rows();
const Row* find_row(std::string_view name, std::span<const Row> table = rows());

// Major * 10 + minor of the CUDA toolkit that made the images, as "13.0" is 130; 0: without nvcc.
int toolkit_version();

// Whether a row can run on a GPU of this compute capability (major * 10 + minor: 80, 86, 90, 120).
bool row_fits(const Row& row, int capability);

// The image to load there: a cubin of the same family, else PTX, else null (compile it).
const Image* choose_image(const Row& row, int capability);

// The translation unit of a row, the same that CMake generates for nvcc.
std::string row_source(const Row& row);

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_ROWS_H_
