#include "jit/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/cache.h"
#include "jit/nvrtc.h"
#include "jit/sha256.h"

namespace strobe::jit {
namespace {

constexpr const char* kFormat = "strobe-jit-1";  // of keys; change it when their content changes

std::vector<std::string> flags_of(const Unit& unit) {
  return {
      "--std=c++20",
      "--device-as-default-execution-space",  // constexpr functions of Configs have no attribute
      "--no-source-include",                  // a file in the working folder is no header of ours
      "--gpu-architecture=" + unit.target,
      fmt::format("-DSTROBE_ARCH={}", unit.source_arch),
  };
}

Digest key_of(const Unit& unit, const std::vector<std::string>& flags, int nvrtc_version) {
  Sha256 hash;
  hash.add_field(kFormat);
  hash.add_field(std::to_string(nvrtc_version));
  hash.add_field(unit.source);
  for (const std::string& flag : flags) hash.add_field(flag);
  hash.add_field("headers");
  for (const gpu::Header& header : unit.headers) {
    hash.add_field(header.name);
    hash.add_field({header.text, header.bytes});
  }
  return hash.finish();
}

// Destroys its program whatever happens.
class OwnedProgram {
 public:
  explicit OwnedProgram(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~OwnedProgram() {
    if (program != nullptr) nvrtc_.destroy(&program);
  }
  OwnedProgram(const OwnedProgram&) = delete;
  OwnedProgram& operator=(const OwnedProgram&) = delete;

  Program program = nullptr;

 private:
  const Nvrtc& nvrtc_;
};

api::Status failed(const Nvrtc& nvrtc, const Unit& unit, NvrtcError error, const std::string& log) {
  return {STROBE_INTERNAL, "kernel",
          fmt::format("kernel {} cannot be compiled for {} by {}: {}.{}{}", unit.name, unit.target,
                      nvrtc.path, nvrtc.error_text(error), log.empty() ? "" : "\n", log)};
}

std::string log_of(const Nvrtc& nvrtc, Program program) {
  std::size_t bytes = 0;
  if (nvrtc.log_bytes(program, &bytes) != 0 || bytes <= 1) return "";
  std::string log(bytes, '\0');
  if (nvrtc.log(program, log.data()) != 0) return "";
  log.resize(std::strlen(log.c_str()));
  return log;
}

// NVRTC itself, no cache.
api::Status run_nvrtc(const Nvrtc& nvrtc, const Unit& unit, const std::vector<std::string>& flags,
                      Compiled* compiled) {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const gpu::Header& header : unit.headers) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  OwnedProgram owned(nvrtc);
  const std::string file = unit.name + ".cu";
  NvrtcError error = nvrtc.create(&owned.program, unit.source.c_str(), file.c_str(),
                                  static_cast<int>(names.size()), texts.data(), names.data());
  if (error != 0) return failed(nvrtc, unit, error, "");
  std::vector<const char*> arguments;
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  error = nvrtc.compile(owned.program, static_cast<int>(arguments.size()), arguments.data());
  if (error != 0) return failed(nvrtc, unit, error, log_of(nvrtc, owned.program));

  const bool ptx = compiled->kind == gpu::ImageKind::kPtx;
  std::size_t bytes = 0;
  error = (ptx ? nvrtc.ptx_bytes : nvrtc.cubin_bytes)(owned.program, &bytes);
  if (error == 0) {
    compiled->image.resize(bytes);
    error = (ptx ? nvrtc.ptx : nvrtc.cubin)(owned.program,
                                            reinterpret_cast<char*>(compiled->image.data()));
  }
  return error == 0 ? api::Status{} : failed(nvrtc, unit, error, "");
}

}  // namespace

Unit unit_of(const gpu::Row& row, int capability, std::span<const int> supported) {
  Unit unit{row.name, gpu::row_source(row), row.headers(), row.arch, ""};
  const bool known = std::find(supported.begin(), supported.end(), capability) != supported.end();
  if (known) {
    unit.target = fmt::format("sm_{}{}", capability, row.arch_specific() ? "a" : "");
  } else {
    // A GPU newer than NVRTC: the driver translates PTX. Code for one architecture fails there, and
    // the compiler or the driver says why.
    unit.target = fmt::format("compute_{}{}", row.arch, row.arch_specific() ? "a" : "");
  }
  return unit;
}

api::Status compile(const gpu::Row& row, int capability, Compiled* compiled) {
  const Nvrtc* compiler = nullptr;
  if (api::Status status = nvrtc(&compiler); !status.ok()) return status;
  return compile(unit_of(row, capability, compiler->supported), compiled);
}

api::Status compile(const Unit& unit, Compiled* compiled) {
  const Nvrtc* compiler = nullptr;
  if (api::Status status = nvrtc(&compiler); !status.ok()) return status;
  *compiled = {};
  compiled->nvrtc_version = compiler->version;
  compiled->kind =
      unit.target.starts_with("compute_") ? gpu::ImageKind::kPtx : gpu::ImageKind::kCubin;

  const std::vector<std::string> flags = flags_of(unit);
  const Digest key = key_of(unit, flags, compiler->version);
  const std::string folder = cache_folder();
  const std::string path =
      folder.empty() ? "" : cache_path(folder, unit.name + "-" + unit.target, key);
  if (!path.empty() && cache_read(path, key, &compiled->image)) {
    compiled->from_cache = compiled->cached = true;
    return {};
  }
  if (api::Status status = run_nvrtc(*compiler, unit, flags, compiled); !status.ok()) {
    return status;
  }
  compiled->cached = !path.empty() && cache_write(path, key, compiled->image);
  return {};
}

}  // namespace strobe::jit
