// The machine model: what the counts of a run would cost each unit of a GPU if it alone worked, at
// its peak and with every SM busy. The largest is a bound of the run's time; the papers reason this
// way.
#ifndef STROBE_SRC_EMU_MODEL_H_
#define STROBE_SRC_EMU_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "emu/report.h"

namespace strobe::emu {

struct MachineModel {
  const char* name;
  int capability;
  int sms;
  std::uint64_t l2_bytes;
  double clock_hz;  // at which the rates below are reached
  double hbm_bytes_per_second;
  // Per SM and cycle.
  double mma_flops;         // bf16 and f16, dense, by mma.sync
  double special_ops;       // exponentials, reciprocals
  double float_ops;         // float32 multiply-adds, maxima, additions
  double shared_bytes;      // read or written
  double l2_reduced_bytes;  // of atomics and reductions, all SMs together
};

// NVIDIA H200 SXM: Hopper tuning guide and white paper; 1.755 GHz is the boost clock under load and
// mma.sync reaches about 62 % of the 4096 FLOPs of wgmma.
inline constexpr MachineModel kH200 = {.name = "NVIDIA H200 SXM",
                                       .capability = 90,
                                       .sms = 132,
                                       .l2_bytes = std::uint64_t{50} << 20,
                                       .clock_hz = 1.755e9,
                                       .hbm_bytes_per_second = 4.8e12,
                                       .mma_flops = 2540,
                                       .special_ops = 16,
                                       .float_ops = 128,
                                       .shared_bytes = 128,
                                       .l2_reduced_bytes = 2400};

struct UnitCycles {
  const char* unit;
  double cycles;  // of one SM's clock
};
std::vector<UnitCycles> cycles(const Report& report, const MachineModel& machine);

// Hazards, traffic, counters and cycles, as one JSON object.
std::string report_json(const Report& report, const MachineModel& machine);

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_MODEL_H_
