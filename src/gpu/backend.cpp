#include "gpu/backend.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace strobe::gpu {
namespace {

class GpuPlan final : public api::PlannedKernel {
 public:
  GpuPlan(const strobe_problem& problem, std::unique_ptr<KernelPlan> plan,
          std::unique_ptr<Device> device)
      : problem_(problem), plan_(std::move(plan)), device_(std::move(device)) {}

  api::Status load() {
    for (const Need& need : plan_->needs()) {
      const LoadedKernel* kernel = nullptr;
      if (api::Status status = device_->load(need, &kernel); !status.ok()) return status;
      loaded_.push_back(kernel);
    }
    return {};
  }

  std::size_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  int threads() const override { return device_->threads(); }
  std::string last_run() const override { return device_->last_run(); }

  api::Facts facts() const override {
    api::Facts facts = plan_->facts();
    for (const LoadedKernel* kernel : loaded_) {
      std::string text = kernel->image;
      if (kernel->registers > 0) text += fmt::format(", {} registers", kernel->registers);
      if (kernel->local_bytes > 0) text += fmt::format(", {} local bytes", kernel->local_bytes);
      facts.emplace_back(fmt::format("code of {}", kernel->row.name), std::move(text));
    }
    for (auto& fact : device_->facts()) facts.push_back(std::move(fact));
    return facts;
  }

  api::Status run(const strobe_run_args& args, void* stream) const override {
    Program program;
    plan_->build(args, loaded_.data(), &program);
    if (!program.valid()) {
      return {STROBE_INTERNAL, "",
              "A kernel's launch list is too long or its parameters are another's. This is a "
              "defect in Strobe: please report it."};
    }
    return device_->run({program, problem_, args, workspace_bytes()}, stream);
  }

 private:
  strobe_problem problem_;
  std::unique_ptr<KernelPlan> plan_;
  std::unique_ptr<Device> device_;
  std::vector<const LoadedKernel*> loaded_;
};

}  // namespace

api::Status plan_on_device(const strobe_problem& problem, const api::Options& options,
                           std::unique_ptr<KernelPlan> kernel_plan,
                           std::unique_ptr<api::PlannedKernel>* planned) {
  std::unique_ptr<Device> device;
  if (api::Status status = open_device(options, &device); !status.ok()) return status;
  auto plan = std::make_unique<GpuPlan>(problem, std::move(kernel_plan), std::move(device));
  if (api::Status status = plan->load(); !status.ok()) return status;
  *planned = std::move(plan);
  return {};
}

api::Status find_need(const std::string& name, const DeviceFacts& device, Need* need) {
  const Row* row = find_row(name);
  const RowShape* shape = find_shape(name);
  if (row == nullptr || shape == nullptr) {
    return api::unsupported("kernel", fmt::format("no row is named {}; src/cuda/kernels.def lists "
                                                  "them. Leave the choice to Strobe.",
                                                  name));
  }
  if (!device.emulated && !row_fits(*row, device.capability)) {
    return api::unsupported(
        "device", fmt::format("device is {} of compute capability {}.{}, but row {} is for {}.{}. "
                              "Leave the choice of the kernel to Strobe.",
                              device.name, device.capability / 10, device.capability % 10, name,
                              row->arch / 10, row->arch % 10));
  }
  if (shape->shared_bytes > device.max_shared_bytes) {
    return api::unsupported(
        "device", fmt::format("device is {} with {} bytes of shared memory for a CTA, but row {} "
                              "needs {}. Leave the choice of the kernel to Strobe.",
                              device.name, device.max_shared_bytes, name, shape->shared_bytes));
  }
  *need = {row, shape};
  return {};
}

}  // namespace strobe::gpu
