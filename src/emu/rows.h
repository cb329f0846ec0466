// Kernel rows compiled for the emulator: src/emu/CMakeLists.txt makes of each line of
// src/cuda/kernels.def one translation unit and one entry of this table.
#ifndef STROBE_SRC_EMU_ROWS_H_
#define STROBE_SRC_EMU_ROWS_H_

#include <span>
#include <string_view>

namespace strobe::emu {

struct EmulatedRow {
  const char* name;
  void (*entry)(const void* params);
};

std::span<const EmulatedRow> emulated_rows();

}  // namespace strobe::emu

#define STROBE_EMULATED_ROW(name, ...)                                  \
  void strobe_emulated_##name(const void* params) {                     \
    __VA_ARGS__::run(*static_cast<const __VA_ARGS__::Params*>(params)); \
  }

#endif  // STROBE_SRC_EMU_ROWS_H_
