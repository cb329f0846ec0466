// The emulator's side of isa/ptx/sm80.h.
#ifndef STROBE_SRC_EMU_ISA_SM80_H_
#define STROBE_SRC_EMU_ISA_SM80_H_

#include "emu/isa_common.h"

namespace strobe::STROBE_TARGET::isa {

STROBE_DEVICE void cp_async_16(u32 to, const void* from, bool valid, Here here = {}) {
  emu::cp_async(to, from, 16, valid, here);
}
template <int kBytes>
STROBE_DEVICE void cp_async_small(u32 to, const void* from, bool valid, Here here = {}) {
  static_assert(kBytes == 4 || kBytes == 8);
  emu::cp_async(to, from, kBytes, valid, here);
}
STROBE_DEVICE void cp_async_commit(Here here = {}) { emu::cp_async_commit(here); }
template <int kPending>
STROBE_DEVICE void cp_async_wait(Here here = {}) {
  emu::cp_async_wait(kPending, here);
}
STROBE_DEVICE u32x4 ldmatrix_x4(u32 address, Here here = {}) {
  return emu::ldmatrix_x4(address, false, here);
}
STROBE_DEVICE u32x4 ldmatrix_x4_trans(u32 address, Here here = {}) {
  return emu::ldmatrix_x4(address, true, here);
}

template <class T>
STROBE_DEVICE void mma_m16n8k16(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here here = {});
template <>
STROBE_DEVICE void mma_m16n8k16<bf16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here here) {
  emu::mma_m16n8k16(true, d, a, b0, b1, here);
}
template <>
STROBE_DEVICE void mma_m16n8k16<f16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here here) {
  emu::mma_m16n8k16(false, d, a, b0, b1, here);
}

template <class T>
STROBE_DEVICE void mma_m16n8k16_first(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here here = {}) {
  d[0] = d[1] = d[2] = d[3] = 0;
  mma_m16n8k16<T>(d, a, b0, b1, here);
}

}  // namespace strobe::STROBE_TARGET::isa

#endif  // STROBE_SRC_EMU_ISA_SM80_H_
