// Operations of Ampere and later: cp.async, ldmatrix, mma.sync.
#ifndef STROBE_SRC_ISA_PTX_SM80_H_
#define STROBE_SRC_ISA_PTX_SM80_H_

#include "isa/ptx/common.h"

namespace strobe::STROBE_TARGET::isa {

// ---- cp.async (9.7.9.25): global to shared, past the registers
// ----------------------------------- Sixteen bytes; zeros where !valid, and then nothing is read.
STROBE_DEVICE void cp_async_16(u32 to, const void* from, bool valid, Here = {}) {
  const u32 bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
// Four or eight bytes.
template <int kBytes>
STROBE_DEVICE void cp_async_small(u32 to, const void* from, bool valid, Here = {}) {
  static_assert(kBytes == 4 || kBytes == 8);
  const u32 bytes = valid ? kBytes : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
               "r"(bytes)
               : "memory");
}
STROBE_DEVICE void cp_async_commit(Here = {}) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `pending` of this thread's groups are unfinished.
template <int kPending>
STROBE_DEVICE void cp_async_wait(Here = {}) {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- ldmatrix (9.7.14.5.15): four 8 x 8 matrices of 16-bit elements
// ------------------------------ Lane l gives the address of row l % 8 of matrix l / 8. Register r
// of lane l holds elements (l / 4, 2 (l % 4)) and the next of matrix r; transposed: (2 (l % 4), l /
// 4) and the one below.
STROBE_DEVICE u32x4 ldmatrix_x4(u32 address, Here = {}) {
  u32x4 y;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(y.x[0]), "=r"(y.x[1]), "=r"(y.x[2]), "=r"(y.x[3])
               : "r"(address)
               : "memory");
  return y;
}
STROBE_DEVICE u32x4 ldmatrix_x4_trans(u32 address, Here = {}) {
  u32x4 y;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(y.x[0]), "=r"(y.x[1]), "=r"(y.x[2]), "=r"(y.x[3])
               : "r"(address)
               : "memory");
  return y;
}

// ---- mma.sync m16n8k16, float32 accumulator (9.7.14.5.8)
// ----------------------------------------- Lane l, g = l / 4, t = l % 4.  A 16 x 16: a[0] (g, 2t),
// a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8), each with its right neighbour.  B 16 x
// 8: b[0] (2t, g), b[1] (2t + 8, g), each with the one below.  D 16 x 8: d[0], d[1] (g, 2t), (g, 2t
// + 1); d[2], d[3] row g + 8.
template <class T>
STROBE_DEVICE void mma_m16n8k16(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here = {});
template <>
STROBE_DEVICE void mma_m16n8k16<bf16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}
template <>
STROBE_DEVICE void mma_m16n8k16<f16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

// The same with zero for D's old value.
template <class T>
STROBE_DEVICE void mma_m16n8k16_first(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here = {});
template <>
STROBE_DEVICE void mma_m16n8k16_first<bf16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
template <>
STROBE_DEVICE void mma_m16n8k16_first<f16>(f32 (&d)[4], const u32x4& a, u32 b0, u32 b1, Here) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

}  // namespace strobe::STROBE_TARGET::isa

#endif  // STROBE_SRC_ISA_PTX_SM80_H_
