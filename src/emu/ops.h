// What the emulated operations of isa_*.h do, for the fiber that is running.
#ifndef STROBE_SRC_EMU_OPS_H_
#define STROBE_SRC_EMU_OPS_H_

#include <cstdint>

#include "core/types.h"
#include "emu/report.h"

namespace strobe::emu {

// Identity.
std::uint32_t thread_index();
std::uint32_t cta_index();
std::uint32_t grid_size();

// Barriers. Participants of barrier 0 with threads 0: the whole CTA.
void barrier(std::uint32_t id, std::uint32_t threads, bool wait, const Here& here);
void warp_sync(std::uint32_t mask, const Here& here);

// Shuffles and votes over the whole warp; `from` is the lane whose value is returned.
std::uint32_t shuffle(std::uint32_t value, std::uint32_t from, const Here& here);
std::uint32_t ballot(bool x, const Here& here);

// Memory. Values are copied bytewise after the checks.
void load_shared(std::uint32_t address, void* to, std::uint32_t bytes, const Here& here);
void store_shared(std::uint32_t address, const void* from, std::uint32_t bytes, const Here& here);
void load_global(const void* address, void* to, std::uint32_t bytes, const Here& here);
void store_global(void* address, const void* from, std::uint32_t bytes, const Here& here);

// Atomics, relaxed but for the two that say otherwise.
void reduce_add_f32(float* p, float value, const Here& here);
std::uint32_t atomic_add_u32(std::uint32_t* p, std::uint32_t value, bool release, const Here& here);
std::uint32_t load_acquire(const std::uint32_t* p, const Here& here);
void fence_device(const Here& here);
void spin_until_equal(const std::uint32_t* p, std::uint32_t value, const Here& here);

// Ampere.
void cp_async(std::uint32_t to, const void* from, std::uint32_t bytes, bool valid,
              const Here& here);
void cp_async_commit(const Here& here);
void cp_async_wait(std::uint32_t pending, const Here& here);
core::u32x4 ldmatrix_x4(std::uint32_t address, bool transposed, const Here& here);
void mma_m16n8k16(bool is_bf16, float (&d)[4], const core::u32x4& a, std::uint32_t b0,
                  std::uint32_t b1, const Here& here);

void count(core::Op op, std::uint32_t n);

// Conversions to nearest even.
std::uint16_t bf16_bits(float x);
std::uint16_t f16_bits(float x);
float f16_value(std::uint16_t bits);

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_OPS_H_
