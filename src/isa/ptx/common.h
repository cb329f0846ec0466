// Operations every architecture has, as PTX. Sections are those of the PTX ISA manual.
#ifndef STROBE_SRC_ISA_PTX_COMMON_H_
#define STROBE_SRC_ISA_PTX_COMMON_H_

#include "core/counted.h"
#include "core/types.h"
#include "isa/target.h"

namespace strobe::STROBE_TARGET {

struct Here {};

namespace isa {

// ---- Identity (9.7.9, special registers) -----------------------------------------------------
STROBE_DEVICE u32 thread_id() { return threadIdx.x; }
STROBE_DEVICE u32 lane_id() { return threadIdx.x % kWarpThreads; }
STROBE_DEVICE u32 cta_id() { return blockIdx.x; }
STROBE_DEVICE u32 grid_size() { return gridDim.x; }
// The same value in all lanes, in a uniform register. All lanes must take part.
STROBE_DEVICE u32 warp_id(Here = {}) {
  return __shfl_sync(kFullWarp, threadIdx.x / kWarpThreads, 0);
}

// x, of which the compiler knows nothing: what is computed from it is computed again, not kept in
// registers meanwhile.
STROBE_DEVICE u32 opaque(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- Counting: only the emulator counts -------------------------------------------------------
STROBE_DEVICE void count(core::Op, u32 = 1) {}

// ---- Barriers (9.7.13) ------------------------------------------------------------------------
// All threads of the CTA, warps converged.
STROBE_DEVICE void cta_sync(Here = {}) { asm volatile("barrier.sync.aligned 0;" ::: "memory"); }
STROBE_DEVICE void barrier_sync(u32 id, u32 threads, Here = {}) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
STROBE_DEVICE void barrier_arrive(u32 id, u32 threads, Here = {}) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
STROBE_DEVICE void warp_sync(u32 mask = kFullWarp, Here = {}) {
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
}

// ---- Shuffles and votes (9.7.9.6, 9.7.13.8) ---------------------------------------------------
template <class T>
STROBE_DEVICE T shfl_xor(T value, u32 lanes, Here = {}) {
  static_assert(sizeof(T) == 4);
  return bit_cast<T>(
      static_cast<u32>(__shfl_xor_sync(kFullWarp, bit_cast<int>(value), static_cast<int>(lanes))));
}
template <class T>
STROBE_DEVICE T shfl(T value, u32 lane, Here = {}) {
  static_assert(sizeof(T) == 4);
  return bit_cast<T>(
      static_cast<u32>(__shfl_sync(kFullWarp, bit_cast<int>(value), static_cast<int>(lane))));
}
STROBE_DEVICE bool vote_any(bool x, Here = {}) { return __any_sync(kFullWarp, x); }
STROBE_DEVICE bool vote_all(bool x, Here = {}) { return __all_sync(kFullWarp, x); }
STROBE_DEVICE u32 ballot(bool x, Here = {}) { return __ballot_sync(kFullWarp, x); }

// ---- Math (9.7.3): approximate, subnormals flushed ---------------------------------------------
STROBE_DEVICE f32 ex2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
STROBE_DEVICE f32 lg2(f32 x) {
  f32 y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
STROBE_DEVICE f32 rcp(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
STROBE_DEVICE f32 tanh_approx(f32 x) {
  f32 y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// max.NaN: a NaN operand gives NaN.
STROBE_DEVICE f32 max_nan(f32 a, f32 b) {
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
STROBE_DEVICE f32 max(f32 a, f32 b) {
  f32 y;
  asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
STROBE_DEVICE f32 min(f32 a, f32 b) {
  f32 y;
  asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
STROBE_DEVICE f32 fma(f32 a, f32 b, f32 c) {
  f32 y;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}

// ---- Conversions (9.7.10.21), to nearest even --------------------------------------------------
template <class T>
STROBE_DEVICE u32 pack(f32 lo, f32 hi);
template <>
STROBE_DEVICE u32 pack<bf16>(f32 lo, f32 hi) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}
template <>
STROBE_DEVICE u32 pack<f16>(f32 lo, f32 hi) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}
STROBE_DEVICE f32 to_float(bf16 x) { return bit_cast<f32>(static_cast<u32>(x.bits) << 16); }
STROBE_DEVICE f32 to_float(f16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
STROBE_DEVICE f32 to_float(f32 x) { return x; }
template <class T>
STROBE_DEVICE T from_float(f32 x) {
  return T{static_cast<u16>(pack<T>(x, 0.0f))};
}
template <>
STROBE_DEVICE f32 from_float<f32>(f32 x) {
  return x;
}

// ---- Shared memory (9.7.9.8, 9.7.9.12) ---------------------------------------------------------
// The first byte of the kernel's dynamic shared memory.
STROBE_DEVICE u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char strobe_shared[];
  return static_cast<u32>(__cvta_generic_to_shared(strobe_shared));
}

template <class T>
STROBE_DEVICE T ld_shared(u32 address, Here = {}) {
  if constexpr (sizeof(T) == 1) {
    u32 y;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(y) : "r"(address) : "memory");
    return bit_cast<T>(static_cast<u8>(y));
  } else if constexpr (sizeof(T) == 2) {
    u16 y;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(y) : "r"(address) : "memory");
    return bit_cast<T>(y);
  } else if constexpr (sizeof(T) == 4) {
    u32 y;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(y) : "r"(address) : "memory");
    return bit_cast<T>(y);
  } else if constexpr (sizeof(T) == 8) {
    u32x2 y;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(y.x[0]), "=r"(y.x[1])
                 : "r"(address)
                 : "memory");
    return bit_cast<T>(y);
  } else {
    static_assert(sizeof(T) == 16);
    u32x4 y;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(y.x[0]), "=r"(y.x[1]), "=r"(y.x[2]), "=r"(y.x[3])
                 : "r"(address)
                 : "memory");
    return bit_cast<T>(y);
  }
}

template <class T>
STROBE_DEVICE void st_shared(u32 address, T value, Here = {}) {
  if constexpr (sizeof(T) == 1) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(static_cast<u32>(bit_cast<u8>(value)))
                 : "memory");
  } else if constexpr (sizeof(T) == 2) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(bit_cast<u16>(value)) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(bit_cast<u32>(value)) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    const u32x2 y = bit_cast<u32x2>(value);
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(y.x[0]), "r"(y.x[1])
                 : "memory");
  } else {
    static_assert(sizeof(T) == 16);
    const u32x4 y = bit_cast<u32x4>(value);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(y.x[0]),
                 "r"(y.x[1]), "r"(y.x[2]), "r"(y.x[3])
                 : "memory");
  }
}

// ---- Global memory (9.7.9.8) -------------------------------------------------------------------
template <class T>
STROBE_DEVICE T ld_global(const T* p, Here = {}) {
  return *p;
}
template <class T>
STROBE_DEVICE void st_global(T* p, T value, Here = {}) {
  *p = value;
}
// Through the read-only path: nothing may write *p while the kernel runs.
template <class T>
STROBE_DEVICE T ld_global_nc(const T* p, Here = {}) {
  if constexpr (sizeof(T) == 16) {
    u32x4 y;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(y.x[0]), "=r"(y.x[1]), "=r"(y.x[2]), "=r"(y.x[3])
                 : "l"(p));
    return bit_cast<T>(y);
  } else {
    return *p;
  }
}
// Written once, not read again by this kernel: evicted first.
template <class T>
STROBE_DEVICE void st_global_streaming(T* p, T value, Here = {}) {
  if constexpr (sizeof(T) == 16) {
    const u32x4 y = bit_cast<u32x4>(value);
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(y.x[0]), "r"(y.x[1]),
                 "r"(y.x[2]), "r"(y.x[3])
                 : "memory");
  } else {
    *p = value;
  }
}

// ---- Atomics and reductions (9.7.13.5, .6), device scope ----------------------------------------
STROBE_DEVICE void red_add(f32* p, f32 value, Here = {}) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(value) : "memory");
}
// Four neighbours at once, 16-byte aligned; each addition is atomic, the four are not.
STROBE_DEVICE void red_add4(f32* p, f32x4 v, Here = {}) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i) red_add(p + i, v[i]);
#endif
}
STROBE_DEVICE u32 atom_add(u32* p, u32 value, Here = {}) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(p), "r"(value)
               : "memory");
  return old;
}
STROBE_DEVICE u32 ld_acquire(const u32* p, Here = {}) {
  u32 y;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(y) : "l"(p) : "memory");
  return y;
}
STROBE_DEVICE void red_release_add(u32* p, u32 value, Here = {}) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// Orders this thread's earlier writes before its later ones, as seen by the whole device.
STROBE_DEVICE void fence_device(Here = {}) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Waits until *p, read with acquire, equals value. The emulator lets other CTAs run meanwhile.
STROBE_DEVICE void spin_until_equal(const u32* p, u32 value, Here = {}) {
  while (ld_acquire(p) != value) __nanosleep(20);
}

// ---- Programmatic dependent launch (9.7.13.13): no operation before sm_90
// ------------------------
STROBE_DEVICE void griddepcontrol_wait(Here = {}) {
#if STROBE_ARCH >= 90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
STROBE_DEVICE void griddepcontrol_launch_dependents(Here = {}) {
#if STROBE_ARCH >= 90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace isa
}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_ISA_PTX_COMMON_H_
