// A family of kernels on devices cuda and emulator: from a resolved problem to the rows that serve
// it and the launches of a run. Each family_*.cpp defines one; gpu/backend.h makes of it one
// backend row for each device. Families know of neither device but by its facts.
#ifndef STROBE_SRC_GPU_FAMILY_H_
#define STROBE_SRC_GPU_FAMILY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/backend.h"
#include "gpu/program.h"

namespace strobe::gpu {

struct DeviceFacts {
  std::string name;
  int capability = 0;  // major * 10 + minor: 80, 90, 100
  int sms = 0;
  std::uint64_t l2_bytes = 0;
  std::uint32_t max_shared_bytes = 0;  // of one CTA, dynamic
  bool emulated = false;               // the emulator runs the rows of every architecture
};

// A row that a plan launches.
struct Need {
  const Row* row = nullptr;
  const RowShape* shape = nullptr;
};

// Immutable; build() may be called from many threads at once.
class KernelPlan {
 public:
  virtual ~KernelPlan() = default;
  virtual std::size_t workspace_bytes() const { return 0; }  // 0 or a multiple of 256
  virtual api::Facts facts() const = 0;
  virtual std::vector<Need> needs() const = 0;

  // The launches of one run; loaded[n] is the row of needs()[n]. Only computes: it may not read
  // what the pointers in `args` point to, which is device memory.
  virtual void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
                     Program* program) const = 0;
};

struct Family {
  const char* name;
  const char* note;
  std::span<const api::OverrideKey> override_keys;
  // As of api::Backend.
  api::Status (*supports)(const strobe_problem& problem, const api::Options& options,
                          const DeviceFacts& device);
  double (*cost)(const strobe_problem& problem, const DeviceFacts& device);
  api::Status (*plan)(const strobe_problem& problem, const api::Options& options,
                      const DeviceFacts& device, std::unique_ptr<KernelPlan>* plan);
};

// A row of kernels.def and its shape, or why there is none. `name` comes from the family.
api::Status find_need(const std::string& name, const DeviceFacts& device, Need* need);

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_FAMILY_H_
