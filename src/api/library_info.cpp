// strobe_library_info().
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/backend.h"
#include "api/names.h"
#include "api/report.h"
#include "cpu/cpu_backend.h"
#include "cpu/parallel.h"
#include "gpu/device.h"

namespace strobe::api {
namespace {

using Json = nlohmann::ordered_json;

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

// Each GPU in words, or why there is none; and the emulator.
std::vector<std::string> devices() {
  std::vector<std::string> list;
  for (const strobe_device_kind kind : {STROBE_DEVICE_CUDA, STROBE_DEVICE_EMULATOR}) {
    for (int index = 0;; ++index) {
      gpu::DeviceFacts facts;
      const Status status = gpu::device_facts(kind, index, &facts);
      if (status.ok()) {
        list.push_back(fmt::format("{}({}): {}, compute capability {}.{}, {} SMs",
                                   device_name(kind), index, facts.name, facts.capability / 10,
                                   facts.capability % 10, facts.sms));
      } else if (index == 0) {
        list.push_back(fmt::format("{}: none. {}", device_name(kind), status.message));
      }
      if (!status.ok() || kind == STROBE_DEVICE_EMULATOR) break;
    }
  }
  return list;
}

std::string text_of() {
  std::string text = fmt::format(
      "strobe      {}\ncompiler    {}, {}\nCPU targets {}\nthreads     {}, {} by default\n",
      strobe_version(), kCompiler, STROBE_BUILD_TYPE, fmt::join(cpu::targets(), " "),
      cpu::parallel_name(), cpu::default_threads());
  for (const std::string& device : devices()) text += fmt::format("device      {}\n", device);
  for (const Backend* backend : backends()) {
    text += fmt::format("kernel      {} on {}: {}\n", backend->name, device_name(backend->device),
                        backend->note);
    for (const OverrideKey& key : backend->override_keys) {
      text += fmt::format("            override {} = {}\n", key.name, key.values);
    }
  }
  return text;
}

Json json_of() {
  Json kernels = Json::array();
  for (const Backend* backend : backends()) {
    Json overrides = Json::object();
    for (const OverrideKey& key : backend->override_keys) overrides[key.name] = key.values;
    kernels.push_back({{"name", backend->name},
                       {"device", device_name(backend->device)},
                       {"note", backend->note},
                       {"overrides", std::move(overrides)}});
  }
  return {
      {"version", strobe_version()},
      {"compiler", kCompiler},
      {"build_type", STROBE_BUILD_TYPE},
      {"cpu_targets", cpu::targets()},
      {"threads", {{"implementation", cpu::parallel_name()}, {"default", cpu::default_threads()}}},
      {"devices", devices()},
      {"kernels", std::move(kernels)}};
}

}  // namespace

std::string library_info(strobe_format format) {
  return format == STROBE_JSON ? json_of().dump(2) : text_of();
}

}  // namespace strobe::api
