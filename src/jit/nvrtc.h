// NVRTC, CUDA's run-time compiler, opened at run time like the driver. Needs no GPU.
#ifndef STROBE_SRC_JIT_NVRTC_H_
#define STROBE_SRC_JIT_NVRTC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "api/status.h"

namespace strobe::jit {

using NvrtcError = int;  // nvrtcResult; 0 is success
using Program = struct ProgramOpaque*;

// member, symbol, signature.
#define STROBE_NVRTC_FUNCTIONS(X)                                                             \
  X(get_version, "nvrtcVersion", NvrtcError(int* major, int* minor))                          \
  X(error_text, "nvrtcGetErrorString", const char*(NvrtcError))                               \
  X(arch_count, "nvrtcGetNumSupportedArchs", NvrtcError(int*))                                \
  X(archs, "nvrtcGetSupportedArchs", NvrtcError(int*))                                        \
  X(create, "nvrtcCreateProgram",                                                             \
    NvrtcError(Program*, const char* source, const char* name, int header_count,              \
               const char* const* headers, const char* const* header_names))                  \
  X(destroy, "nvrtcDestroyProgram", NvrtcError(Program*))                                     \
  X(compile, "nvrtcCompileProgram", NvrtcError(Program, int count, const char* const* flags)) \
  X(log_bytes, "nvrtcGetProgramLogSize", NvrtcError(Program, std::size_t*))                   \
  X(log, "nvrtcGetProgramLog", NvrtcError(Program, char*))                                    \
  X(cubin_bytes, "nvrtcGetCUBINSize", NvrtcError(Program, std::size_t*))                      \
  X(cubin, "nvrtcGetCUBIN", NvrtcError(Program, char*))                                       \
  X(ptx_bytes, "nvrtcGetPTXSize", NvrtcError(Program, std::size_t*))                          \
  X(ptx, "nvrtcGetPTX", NvrtcError(Program, char*))

struct Nvrtc {
  template <class Signature>
  using FunctionOf = Signature*;
#define STROBE_DECLARE(member, symbol, ...) FunctionOf<__VA_ARGS__> member = nullptr;
  STROBE_NVRTC_FUNCTIONS(STROBE_DECLARE)
#undef STROBE_DECLARE
  int version = 0;             // 13000 is 13.0
  std::vector<int> supported;  // architectures it makes code for: 80, 90, 120 ...
  std::string path;            // of the library

  bool supports(int arch) const;
};

// Opens NVRTC; a success is kept, a failure names what was searched:
//   $STROBE_NVRTC, a path, and then nothing else; else libnvrtc.so.13 or .12
//   on the loader's path, or already loaded into this process (by PyTorch, say);
//   in $CUDA_HOME, $CUDA_PATH, /usr/local/cuda;
//   in the nvidia packages of Python environments: the one this library is installed in,
//   $VIRTUAL_ENV, $CONDA_PREFIX, and that of the first python3 on the PATH.
api::Status nvrtc(const Nvrtc** nvrtc);
// The same without the memory, for tests.
api::Status open_nvrtc(Nvrtc* nvrtc);

}  // namespace strobe::jit

#endif  // STROBE_SRC_JIT_NVRTC_H_
