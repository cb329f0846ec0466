// Machine operations: one function per PTX instruction, the same signatures on the GPU
// (src/isa/ptx) and on the emulator (src/emu). Shared-memory addresses are 32 bit in both worlds.
//
// `Here` is where the caller stands. On the emulator it is filled in by its default, so that
// reports name kernel lines; on the GPU it is empty and costs nothing. Wrappers in src/tile take
// one too and pass it on.
#ifndef STROBE_SRC_ISA_ISA_H_
#define STROBE_SRC_ISA_ISA_H_

#include "core/types.h"
#include "isa/target.h"

namespace strobe::STROBE_TARGET {

using core::bf16;
using core::bit_cast;
using core::ceil_div;
using core::Dtype;
using core::f16;
using core::f32;
using core::f32x2;
using core::f32x4;
using core::i64;
using core::u16;
using core::u32;
using core::u32x2;
using core::u32x4;
using core::u64;
using core::u8;
using core::Vec;

// A compile-time value as an argument.
template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;
};

constexpr u32 kWarpThreads = 32;
constexpr u32 kFullWarp = 0xFFFFFFFFu;

}  // namespace strobe::STROBE_TARGET

// What emulated kernels count beside what the operations count by themselves; nothing on the GPU.
#include "core/counted.h"

#if STROBE_EMULATED
#include "emu/isa_common.h"
#include "emu/isa_sm80.h"
#else
#include "isa/ptx/common.h"
#include "isa/ptx/sm80.h"
#endif

#endif  // STROBE_SRC_ISA_ISA_H_
