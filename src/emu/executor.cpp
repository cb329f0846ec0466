#include "emu/executor.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>

#include "emu/model.h"
#include "emu/rows.h"

namespace strobe::emu {
namespace {

struct EmulatedKernel : gpu::LoadedKernel {
  void (*entry)(const void*) = nullptr;
};

api::Status defect(std::string message) { return {STROBE_INTERNAL, "", std::move(message)}; }

void run_step(const gpu::Launch& step, const Settings& settings, std::uint64_t index,
              EmulatedRun* run) {
  if (step.grid == 0) return;
  const auto& kernel = static_cast<const EmulatedKernel&>(*step.kernel);
  Launch launch;
  launch.name = kernel.row.name;
  launch.grid = step.grid;
  launch.threads = step.block;
  launch.shared_bytes = step.shared_bytes;
  launch.together = step.together || step.cluster > 1;
  launch.entry = kernel.entry;
  launch.params = step.params;
  launch.seed = settings.seed + 0x9E3779B97F4A7C15u * index;
  launch.landing = settings.landing;
  launch.host_threads = settings.host_threads;
  emu::run(launch, run->memory, run->report);
}

Hazard out_of_bounds(const char* what, const Memory& memory, const void* at) {
  return {HazardKind::kOutOfBounds,
          fmt::format("{}: {}", what, memory.describe(reinterpret_cast<std::uintptr_t>(at))), 0, 0,
          Here()};
}

// The tensor that holds `bytes` writable bytes at `to`, or a hazard in the report.
Tensor* writable(void* to, std::size_t bytes, const char* what, EmulatedRun* run) {
  Tensor* tensor = run->memory.find(reinterpret_cast<std::uintptr_t>(to), bytes);
  if (tensor != nullptr && tensor->kind != TensorKind::kInput) return tensor;
  run->report.add(out_of_bounds(what, run->memory, to));
  return nullptr;
}

void mark_written(Tensor* tensor, const void* to, std::size_t bytes) {
  tensor->shadow.mark_written(
      static_cast<std::uint64_t>(static_cast<const char*>(to) - tensor->base), bytes);
  tensor->traffic.bytes_written += bytes;
}

void run_step(const gpu::Memset& step, const Settings&, std::uint64_t, EmulatedRun* run) {
  if (step.bytes == 0) return;
  if (Tensor* tensor = writable(step.to, step.bytes, "memset", run)) {
    std::memset(step.to, step.value, step.bytes);
    mark_written(tensor, step.to, step.bytes);
  }
}

void run_step(const gpu::Copy& step, const Settings&, std::uint64_t, EmulatedRun* run) {
  if (step.bytes == 0) return;
  Tensor* from = run->memory.find(reinterpret_cast<std::uintptr_t>(step.from), step.bytes);
  if (from == nullptr) {
    run->report.add(out_of_bounds("copy from", run->memory, step.from));
    return;
  }
  if (Tensor* to = writable(step.to, step.bytes, "copy to", run)) {
    std::memmove(step.to, step.from, step.bytes);
    from->traffic.bytes_read += step.bytes;
    mark_written(to, step.to, step.bytes);
  }
}

}  // namespace

const char* name(Landing landing) {
  switch (landing) {
    case Landing::kImmediate:
      return "immediately";
    case Landing::kLate:
      return "as late as the waits allow";
    default:
      return "at random times";
  }
}

api::Status EmulatorExecutor::load(const gpu::Row& row, std::uint32_t shared_bytes,
                                   const gpu::LoadedKernel** kernel) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string_view, EmulatedKernel>;  // outlives every plan
  if (shared_bytes > kMaxSharedBytes) {
    return api::unsupported("device", fmt::format("row {} needs {} bytes of shared memory, but the "
                                                  "emulated GPU has {} for a CTA.",
                                                  row.name, shared_bytes, kMaxSharedBytes));
  }
  for (const EmulatedRow& emulated : emulated_rows()) {
    if (std::string_view(row.name) != emulated.name) continue;
    const std::lock_guard lock(mutex);
    EmulatedKernel& slot = (*loaded)[emulated.name];
    slot.row = row;
    slot.image = "emulator";
    slot.entry = emulated.entry;
    *kernel = &slot;
    return {};
  }
  return api::unsupported("kernel", fmt::format("row {} was not compiled for the emulator. Leave "
                                                "the choice of the kernel to Strobe.",
                                                row.name));
}

api::Status EmulatorExecutor::run(std::span<const gpu::Step> steps, void* stream) const {
  if (stream == nullptr) return defect("The emulator needs an EmulatedRun. Report this defect.");
  auto* const run = static_cast<EmulatedRun*>(stream);
  std::uint64_t index = 0;
  for (const gpu::Step& step : steps) {
    std::visit([&](const auto& it) { run_step(it, settings_, index, run); }, step);
    ++index;
    if (!run->report.clean()) break;
  }
  run->memory.add_traffic_to(run->report);
  {
    const std::lock_guard lock(mutex_);
    last_ = run->report;
    has_run_ = true;
  }
  if (run->report.clean()) return {};
  return defect(fmt::format("The emulator found hazards (seed {}, operations land {}):\n{}",
                            settings_.seed, name(settings_.landing), run->report.text()));
}

std::string EmulatorExecutor::last_run() const {
  const std::lock_guard lock(mutex_);
  return has_run_ ? report_json(last_, kH200) : std::string();
}

}  // namespace strobe::emu
