// Which machine this translation unit is for. Kernel code lives in namespace strobe::STROBE_TARGET,
// so that one program may hold the same source built for several machines.
//
//   nvcc, NVRTC:  STROBE_ARCH = 80, 90, 100 is given on the command line; operations are PTX
//   g++:          STROBE_ARCH defaults to 80; operations are the emulator's (src/emu)
#ifndef STROBE_SRC_ISA_TARGET_H_
#define STROBE_SRC_ISA_TARGET_H_

#ifndef STROBE_ARCH
#define STROBE_ARCH 80
#endif

#ifdef __CUDACC__
#define STROBE_EMULATED 0
#define STROBE_DEVICE __device__ __forceinline__
#define STROBE_UNROLL _Pragma("unroll")
#define STROBE_NO_UNROLL _Pragma("unroll 1")
#else
#define STROBE_EMULATED 1
#define STROBE_DEVICE inline
#define STROBE_UNROLL
#define STROBE_NO_UNROLL
#endif

#if STROBE_ARCH >= 100
#define STROBE_ARCH_NAME sm100a
#elif STROBE_ARCH >= 90
#define STROBE_ARCH_NAME sm90a
#else
#define STROBE_ARCH_NAME sm80
#endif
#define STROBE_JOIN_(a, b) a##b
#define STROBE_JOIN(a, b) STROBE_JOIN_(a, b)
#if STROBE_EMULATED
#define STROBE_TARGET STROBE_JOIN(emu_, STROBE_ARCH_NAME)
#else
#define STROBE_TARGET STROBE_ARCH_NAME
#endif

#endif  // STROBE_SRC_ISA_TARGET_H_
