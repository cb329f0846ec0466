// strobe warmup: compiles kernels ahead of their first use, into the cache on disk.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "commands.h"
#include "cuda/driver.h"
#include "gpu/rows.h"
#include "jit/cache.h"
#include "jit/compile.h"
#include "jit/nvrtc.h"

namespace strobe::tools {
namespace {

struct Options {
  std::vector<std::string> patterns;
  std::string arch;
  bool all = false;
  bool list = false;
  int jobs = 0;
};

ExitCode code_of(const api::Status& status) {
  return status.code == STROBE_INVALID_ARGUMENT || status.code == STROBE_UNSUPPORTED ? kUsage
                                                                                     : kFailed;
}

// "90", "9.0", "sm_90" and "sm_90a" as 90; 0 for anything else.
int capability_of(std::string text) {
  if (text.starts_with("sm_")) text.erase(0, 3);
  if (text.ends_with('a')) text.pop_back();
  std::erase(text, '.');
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 80 && value < 1000
             ? value
             : 0;
}

bool selected(const Options& options, const gpu::Row& row) {
  return options.patterns.empty() ||
         std::any_of(options.patterns.begin(), options.patterns.end(),
                     [&](const std::string& p) { return fnmatch(p.c_str(), row.name, 0) == 0; });
}

// What the library itself holds for that GPU: nothing has to be compiled.
const char* shipped(const gpu::Row& row, int capability) {
  const gpu::Image* image = gpu::choose_image(row, capability);
  if (image == nullptr) return nullptr;
  return image->kind == gpu::ImageKind::kCubin ? "cubin" : "PTX";
}

int list_rows() {
  for (const gpu::Row& row : gpu::rows()) fmt::print("{}\n", row.name);
  return kOk;
}

// Compiles the rows on some threads, and prints each when it is done. The worst exit code.
int compile_rows(const CLI::App& app, const std::vector<const gpu::Row*>& rows, int capability,
                 unsigned jobs) {
  std::mutex mutex;  // of what is printed, and of `worst`
  int worst = kOk;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++) {
      const auto start = std::chrono::steady_clock::now();
      jit::Compiled compiled;
      const api::Status status = jit::compile(*rows[i], capability, &compiled);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      const std::lock_guard lock(mutex);
      if (!status.ok()) {
        worst = std::max(worst, report(app, code_of(status), status.message));
      } else if (!compiled.cached) {
        worst = report(app, kFailed,
                       fmt::format("{}: compiled, but {} cannot be written. Set STROBE_CACHE_DIR.",
                                   rows[i]->name, jit::cache_folder()));
      } else {
        fmt::print("{}: {}, {} bytes\n", rows[i]->name,
                   compiled.from_cache ? "was in the cache"
                                       : fmt::format("compiled in {:.1f} s", taken.count()),
                   compiled.image.size());
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<std::size_t>(jobs, rows.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return worst;
}

// The compute capability that is asked for: --arch, else that of GPU 0.
int find_capability(const CLI::App& app, const Options& options, int* capability) {
  if (!options.arch.empty()) {
    *capability = capability_of(options.arch);
    if (*capability != 0) return kOk;
    return report(
        app, kUsage,
        fmt::format("--arch: '{}' is no architecture. Give one as 90 or sm_90", options.arch));
  }
  cuda::DeviceFacts facts;
  const api::Status status = cuda::device_facts(0, &facts);
  *capability = facts.capability;
  if (status.ok()) return kOk;
  return report(app, kUsage,
                fmt::format("--arch: not given, and there is no GPU to ask. {}", status.message));
}

int warmup(const CLI::App& app, const Options& options) {
  if (options.list) return list_rows();
  int capability = 0;
  if (const int code = find_capability(app, options, &capability); code != kOk) return code;
  std::vector<const gpu::Row*> rows;
  std::size_t matching = 0;
  for (const gpu::Row& row : gpu::rows()) {
    if (!selected(options, row)) continue;
    ++matching;
    if (!gpu::row_fits(row, capability)) continue;
    const char* image = options.all ? nullptr : shipped(row, capability);
    if (image != nullptr) {
      fmt::print("{}: the library has its {}\n", row.name, image);
    } else {
      rows.push_back(&row);
    }
  }
  if (matching == 0) {
    return report(app, kUsage, "no kernel has such a name; strobe warmup --list has them all");
  }
  if (rows.empty()) {
    fmt::print("nothing has to be compiled for sm_{}\n", capability);
    return kOk;
  }
  const std::string folder = jit::cache_folder();
  if (folder.empty()) {
    return report(app, kUsage,
                  "there is no cache to fill: STROBE_CACHE_DIR is empty, or no HOME is set");
  }
  const jit::Nvrtc* compiler = nullptr;
  if (const api::Status status = jit::nvrtc(&compiler); !status.ok()) {
    return report(app, code_of(status), status.message);
  }
  fmt::print("{} kernels for sm_{} by {} ({}) into {}\n", rows.size(), capability, compiler->path,
             cuda::version_text(compiler->version), folder);
  const unsigned jobs = options.jobs > 0 ? static_cast<unsigned>(options.jobs)
                                         : std::max(1u, std::thread::hardware_concurrency());
  return compile_rows(app, rows, capability, jobs);
}

}  // namespace

Command add_warmup(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "warmup", "Compile the GPU kernels that would be compiled at first use, into the cache.");
  auto options = std::make_shared<Options>();
  app->add_option("kernels", options->patterns,
                  "names of kernels, with * and ? as in a shell; default: all");
  app->add_option("--arch", options->arch,
                  "compute capability to compile for, as 90 or sm_90; default: that of GPU 0");
  app->add_flag("--all", options->all, "also those that the library holds compiled");
  app->add_flag("--list", options->list, "print the names of all kernels, and compile nothing");
  app->add_option("--jobs", options->jobs, "threads; default: one for each CPU")
      ->check(CLI::Range(1, 1024));
  app->footer(
      "Needs NVRTC, but no GPU. The cache is in STROBE_CACHE_DIR, or ~/.cache/strobe.\n"
      "Examples:\n"
      "  strobe warmup\n"
      "  strobe warmup 'fa2_fwd_*' --arch 90 --all");
  return {app, [app, options] { return warmup(*app, *options); }};
}

}  // namespace strobe::tools
