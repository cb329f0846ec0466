#include "gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <string>
#include <utility>

#include "api/overlap.h"
#include "api/tensors.h"
#include "cuda/executor.h"

#if STROBE_EMULATED_KERNELS
#include <thread>

#include "emu/executor.h"
#include "emu/model.h"
#endif

namespace strobe::gpu {
namespace {

// ---- A GPU

// Of the GPU that the tests have run on: an H200.
constexpr int kVerifiedCapability = 90;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::unique_ptr<cuda::CudaExecutor> executor)
      : executor_(std::move(executor)) {}

  api::Status load(const Need& need, const LoadedKernel** kernel) override {
    return executor_->load(*need.row, need.shape->shared_bytes, kernel);
  }
  api::Status run(const Run& run, void* stream) const override {
    return executor_->run(run.program.steps(), stream);
  }
  api::Facts facts() const override {
    const cuda::DeviceFacts& f = executor_->facts();
    api::Facts facts = {
        {"device", fmt::format("{}: compute capability {}.{}, {} SMs", f.name, f.capability / 10,
                               f.capability % 10, f.multiprocessors)}};
    if (f.capability != kVerifiedCapability) {
      facts.emplace_back("unverified on hardware",
                         fmt::format("the kernels have run on compute capability {}.{} alone",
                                     kVerifiedCapability / 10, kVerifiedCapability % 10));
    }
    return facts;
  }

 private:
  std::unique_ptr<cuda::CudaExecutor> executor_;
};

api::Status cuda_facts(int index, DeviceFacts* facts) {
  cuda::DeviceFacts f;
  if (api::Status status = cuda::device_facts(index, &f); !status.ok()) return status;
  if (f.capability < 80) {
    return api::unsupported("device",
                            fmt::format("device is {} of compute capability {}.{}, but the kernels "
                                        "need 8.0 (Ampere). Plan for the CPU.",
                                        f.name, f.capability / 10, f.capability % 10));
  }
  *facts = {.name = f.name,
            .capability = f.capability,
            .sms = f.multiprocessors,
            .l2_bytes = static_cast<std::uint64_t>(f.l2_bytes),
            .max_shared_bytes = static_cast<std::uint32_t>(f.shared_bytes_per_block)};
  return {};
}

// ---- The emulator

#if STROBE_EMULATED_KERNELS

api::Status bad_override(const char* key, const std::string& value, const char* limit) {
  return api::invalid("overrides", fmt::format("overrides: {} is \"{}\", but it must be {}. Leave "
                                               "it out for the default.",
                                               key, value.substr(0, 80), limit));
}

api::Status read_settings(const api::Options& options, emu::Settings* settings) {
  settings->host_threads = options.threads;
  if (options.threads == 0) {
    settings->host_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  if (const auto seed = options.overrides.find("seed"); seed != options.overrides.end()) {
    const std::string& text = seed->second;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), settings->seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      return bad_override("seed", text, "a number from 0 to 2^64 - 1");
    }
  }
  if (const auto landing = options.overrides.find("landing"); landing != options.overrides.end()) {
    const std::string& text = landing->second;
    constexpr std::array<std::pair<const char*, emu::Landing>, 3> kLandings = {
        {{"immediate", emu::Landing::kImmediate},
         {"late", emu::Landing::kLate},
         {"random", emu::Landing::kRandom}}};
    const auto* const found = std::find_if(kLandings.begin(), kLandings.end(),
                                           [&](const auto& entry) { return text == entry.first; });
    if (found == kLandings.end()) {
      return bad_override("landing", text, "immediate, late or random");
    }
    settings->landing = found->second;
  }
  return {};
}

// Every tensor of the run with its exact extent, and the workspace.
void register_tensors(const Run& run, emu::Memory* memory) {
  for (const api::Tensor& tensor : api::tensors_of(run.problem)) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&run.args) + tensor.args_offset,
                sizeof(pointer));
    if (pointer == nullptr || tensor.elements() == 0) continue;
    const api::Span span = api::span_of(tensor, pointer);
    memory->add(tensor.name, reinterpret_cast<const void*>(span.begin), span.end - span.begin,
                tensor.written ? emu::TensorKind::kOutput : emu::TensorKind::kInput);
  }
  if (run.problem.op == STROBE_MERGE) {
    const api::Tensor o = api::partial_o_of(run.problem), lse = api::partial_lse_of(run.problem);
    for (int n = 0; n < run.problem.partials; ++n) {
      for (const auto& [tensor, pointers] :
           {std::pair(&o, run.args.partial_o), std::pair(&lse, run.args.partial_lse)}) {
        if (tensor->elements() == 0) continue;
        const api::Span span = api::span_of(*tensor, pointers[n]);
        memory->add(fmt::format("{}[{}]", tensor->name, n),
                    reinterpret_cast<const void*>(span.begin), span.end - span.begin,
                    emu::TensorKind::kInput);
      }
    }
  }
  memory->add("workspace", run.args.workspace, run.workspace_bytes, emu::TensorKind::kOutput);
}

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const emu::Settings& settings) : executor_(settings) {}

  api::Status load(const Need& need, const LoadedKernel** kernel) override {
    return executor_.load(*need.row, need.shape->shared_bytes, kernel);
  }
  api::Status run(const Run& run, void*) const override {
    emu::EmulatedRun emulated;
    register_tensors(run, &emulated.memory);
    return executor_.run(run.program.steps(), &emulated);
  }
  int threads() const override { return executor_.settings().host_threads; }
  std::string last_run() const override { return executor_.last_run(); }
  api::Facts facts() const override {
    const emu::Settings& s = executor_.settings();
    return {{"emulation", fmt::format("seed {}, asynchronous operations land {}", s.seed,
                                      emu::name(s.landing))}};
  }

 private:
  emu::EmulatorExecutor executor_;
};

DeviceFacts emulator_facts() {
  const emu::MachineModel& m = emu::kH200;
  return {.name = "the emulator",
          .capability = m.capability,
          .sms = m.sms,
          .l2_bytes = m.l2_bytes,
          .max_shared_bytes = emu::kMaxSharedBytes,
          .emulated = true};
}

#endif  // STROBE_EMULATED_KERNELS

[[maybe_unused]] api::Status no_emulator() {
  return api::unsupported("device",
                          "device is emulator, but this build has none. Build with "
                          "STROBE_EMULATOR=ON, which needs Boost.Context, or plan for the CPU.");
}

}  // namespace

api::Status device_facts(strobe_device_kind kind, int index, DeviceFacts* facts) {
  if (kind == STROBE_DEVICE_CUDA) return cuda_facts(index, facts);
#if STROBE_EMULATED_KERNELS
  *facts = emulator_facts();
  return {};
#else
  return no_emulator();
#endif
}

api::Status open_device(const api::Options& options, std::unique_ptr<Device>* device) {
  if (options.device == STROBE_DEVICE_CUDA) {
    std::unique_ptr<cuda::CudaExecutor> executor;
    api::Status status =
        cuda::CudaExecutor::create(options.device_index, cuda::ImageSource::kAutomatic, &executor);
    if (status.ok()) *device = std::make_unique<CudaDevice>(std::move(executor));
    return status;
  }
#if STROBE_EMULATED_KERNELS
  emu::Settings settings;
  if (api::Status status = read_settings(options, &settings); !status.ok()) return status;
  *device = std::make_unique<EmulatedDevice>(settings);
  return {};
#else
  return no_emulator();
#endif
}

}  // namespace strobe::gpu
