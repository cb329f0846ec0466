// What the host must know of a kernel row to launch it, read from the kernel's own struct by
// including its header: src/gpu/CMakeLists.txt generates the table from src/cuda/kernels.def.
#ifndef STROBE_SRC_GPU_SHAPES_H_
#define STROBE_SRC_GPU_SHAPES_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace strobe::gpu {

struct RowShape {
  const char* name = nullptr;
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;  // dynamic
  std::uint32_t params_bytes = 0;
  int min_ctas = 0;  // per SM, that registers are limited for
  int block_m = 0;   // query rows of a tile; 0: the kernel has no such tile
  int block_n = 0;   // keys of a step
};

template <class Kernel>
constexpr RowShape shape_of(const char* name) {
  RowShape shape = {.name = name,
                    .threads = Kernel::kThreads,
                    .shared_bytes = Kernel::kSharedBytes,
                    .params_bytes = sizeof(typename Kernel::Params),
                    .min_ctas = Kernel::kMinCtas};
  if constexpr (requires { Kernel::kBlockM; }) shape.block_m = Kernel::kBlockM;
  if constexpr (requires { Kernel::kBlockN; }) shape.block_n = Kernel::kBlockN;
  return shape;
}

// Of every row of src/cuda/kernels.def, whatever its architecture; null: no such row.
const RowShape* find_shape(std::string_view name);

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_SHAPES_H_
