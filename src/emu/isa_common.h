// The emulator's side of isa/ptx/common.h: the same functions for g++.
#ifndef STROBE_SRC_EMU_ISA_COMMON_H_
#define STROBE_SRC_EMU_ISA_COMMON_H_

#include <cmath>

#include "core/types.h"
#include "emu/ops.h"
#include "isa/target.h"

namespace strobe::STROBE_TARGET {

using emu::Here;

namespace isa {

STROBE_DEVICE u32 thread_id() { return emu::thread_index(); }
STROBE_DEVICE u32 lane_id() { return emu::thread_index() % kWarpThreads; }
STROBE_DEVICE u32 cta_id() { return emu::cta_index(); }
STROBE_DEVICE u32 grid_size() { return emu::grid_size(); }
STROBE_DEVICE u32 warp_id(Here here = {}) {
  return emu::shuffle(thread_id() / kWarpThreads, 0, here);
}
STROBE_DEVICE u32 opaque(u32 x) { return x; }
STROBE_DEVICE void count(core::Op op, u32 n = 1) { emu::count(op, n); }

STROBE_DEVICE void cta_sync(Here here = {}) { emu::barrier(0, 0, true, here); }
STROBE_DEVICE void barrier_sync(u32 id, u32 threads, Here here = {}) {
  emu::barrier(id, threads, true, here);
}
STROBE_DEVICE void barrier_arrive(u32 id, u32 threads, Here here = {}) {
  emu::barrier(id, threads, false, here);
}
STROBE_DEVICE void warp_sync(u32 mask = kFullWarp, Here here = {}) { emu::warp_sync(mask, here); }

template <class T>
STROBE_DEVICE T shfl_xor(T value, u32 lanes, Here here = {}) {
  return bit_cast<T>(emu::shuffle(bit_cast<u32>(value), lane_id() ^ lanes, here));
}
template <class T>
STROBE_DEVICE T shfl(T value, u32 lane, Here here = {}) {
  return bit_cast<T>(emu::shuffle(bit_cast<u32>(value), lane, here));
}
STROBE_DEVICE bool vote_any(bool x, Here here = {}) { return emu::ballot(x, here) != 0; }
STROBE_DEVICE bool vote_all(bool x, Here here = {}) { return emu::ballot(!x, here) == 0; }
STROBE_DEVICE u32 ballot(bool x, Here here = {}) { return emu::ballot(x, here); }

// The approximations are the exact functions here, but for subnormals.
STROBE_DEVICE f32 flush(f32 x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
STROBE_DEVICE f32 ex2(f32 x) {
  count(core::Op::kExp);
  return flush(std::exp2(flush(x)));
}
STROBE_DEVICE f32 lg2(f32 x) { return std::log2(flush(x)); }
STROBE_DEVICE f32 rcp(f32 x) {
  count(core::Op::kDivide);
  return flush(1.0f / flush(x));
}
STROBE_DEVICE f32 tanh_approx(f32 x) { return std::tanh(x); }
STROBE_DEVICE f32 max_nan(f32 a, f32 b) { return a != a ? a : b != b ? b : (a < b ? b : a); }
STROBE_DEVICE f32 max(f32 a, f32 b) { return a != a ? b : b != b ? a : (a < b ? b : a); }
STROBE_DEVICE f32 min(f32 a, f32 b) { return a != a ? b : b != b ? a : (b < a ? b : a); }
STROBE_DEVICE f32 fma(f32 a, f32 b, f32 c) {
  return flush(std::fma(flush(a), flush(b), flush(c)));
}

template <class T>
STROBE_DEVICE u32 pack(f32 lo, f32 hi);
template <>
STROBE_DEVICE u32 pack<bf16>(f32 lo, f32 hi) {
  return static_cast<u32>(emu::bf16_bits(hi)) << 16 | emu::bf16_bits(lo);
}
template <>
STROBE_DEVICE u32 pack<f16>(f32 lo, f32 hi) {
  return static_cast<u32>(emu::f16_bits(hi)) << 16 | emu::f16_bits(lo);
}
STROBE_DEVICE f32 to_float(bf16 x) { return bit_cast<f32>(static_cast<u32>(x.bits) << 16); }
STROBE_DEVICE f32 to_float(f16 x) { return emu::f16_value(x.bits); }
STROBE_DEVICE f32 to_float(f32 x) { return x; }
template <class T>
STROBE_DEVICE T from_float(f32 x) {
  return T{static_cast<u16>(pack<T>(x, 0.0f))};
}
template <>
STROBE_DEVICE f32 from_float<f32>(f32 x) {
  return x;
}

STROBE_DEVICE u32 shared_base() { return 1024; }
template <class T>
STROBE_DEVICE T ld_shared(u32 address, Here here = {}) {
  T value;
  emu::load_shared(address, &value, sizeof(T), here);
  return value;
}
template <class T>
STROBE_DEVICE void st_shared(u32 address, T value, Here here = {}) {
  emu::store_shared(address, &value, sizeof(T), here);
}
template <class T>
STROBE_DEVICE T ld_global(const T* p, Here here = {}) {
  T value;
  emu::load_global(p, &value, sizeof(T), here);
  return value;
}
template <class T>
STROBE_DEVICE T ld_global_nc(const T* p, Here here = {}) {
  return ld_global(p, here);
}
template <class T>
STROBE_DEVICE void st_global(T* p, T value, Here here = {}) {
  emu::store_global(p, &value, sizeof(T), here);
}
template <class T>
STROBE_DEVICE void st_global_streaming(T* p, T value, Here here = {}) {
  st_global(p, value, here);
}

STROBE_DEVICE void red_add(f32* p, f32 value, Here here = {}) {
  emu::reduce_add_f32(p, value, here);
}
STROBE_DEVICE void red_add4(f32* p, f32x4 v, Here here = {}) {
  for (int i = 0; i < 4; ++i) red_add(p + i, v[i], here);
}
STROBE_DEVICE u32 atom_add(u32* p, u32 value, Here here = {}) {
  return emu::atomic_add_u32(p, value, false, here);
}
STROBE_DEVICE u32 ld_acquire(const u32* p, Here here = {}) { return emu::load_acquire(p, here); }
STROBE_DEVICE void red_release_add(u32* p, u32 value, Here here = {}) {
  emu::atomic_add_u32(p, value, true, here);
}
STROBE_DEVICE void fence_device(Here here = {}) { emu::fence_device(here); }
STROBE_DEVICE void spin_until_equal(const u32* p, u32 value, Here here = {}) {
  emu::spin_until_equal(p, value, here);
}

// Launches follow each other here, so there is nothing to wait for.
STROBE_DEVICE void griddepcontrol_wait(Here = {}) {}
STROBE_DEVICE void griddepcontrol_launch_dependents(Here = {}) {}

}  // namespace isa
}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_EMU_ISA_COMMON_H_
