// The part of long_sequence.h that talks to the operating system.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>

#include "long_sequence.h"

namespace strobe::demo {
namespace {

// Reads until the writer closes its end; what came.
std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 256> part;
  for (;;) {
    const ssize_t count = read(descriptor, part.data(), part.size());
    if (count > 0) {
      text.append(part.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

// The number a file starts with.
std::optional<double> number_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

}  // namespace

std::optional<Measurement> measure_in_child(const char* program, const LongRun& run,
                                            std::string* error) {
  const std::string seqlen = std::to_string(run.seqlen), threads = std::to_string(run.threads);
  const std::array<const char*, 9> arguments{program,
                                             "--child",
                                             run.standard ? "standard" : "strobe",
                                             "--mask",
                                             run.causal ? "causal" : "full",
                                             "--length",
                                             seqlen.c_str(),
                                             "--threads",
                                             threads.c_str()};
  std::array<char*, arguments.size() + 1> argv{};  // ends in a null pointer
  for (std::size_t n = 0; n < arguments.size(); ++n) argv[n] = const_cast<char*>(arguments[n]);

  int ends[2];
  if (pipe(ends) != 0) {
    *error = std::string("pipe: ") + std::strerror(errno);
    return std::nullopt;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execvp(program, argv.data());
    _exit(127);
  }
  close(ends[1]);
  const std::string output = child > 0 ? read_all(ends[0]) : "";
  close(ends[0]);

  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) {
    *error = std::string("the child process was lost: ") + std::strerror(errno);
  } else if (WIFSIGNALED(status)) {
    *error = std::string("the child process died: ") + strsignal(WTERMSIG(status)) +
             "; with less memory free, pass a smaller --length";
  } else if (WEXITSTATUS(status) != 0 || output.size() != sizeof(Measurement)) {
    *error = "the child process failed with exit code " + std::to_string(WEXITSTATUS(status));
  } else {
    Measurement result;
    std::memcpy(&result, output.data(), sizeof(result));
#ifdef __APPLE__
    result.peak_bytes = static_cast<double>(usage.ru_maxrss);
#else
    result.peak_bytes = 1024.0 * static_cast<double>(usage.ru_maxrss);
#endif
    return result;
  }
  return std::nullopt;
}

std::int64_t seqlen_for_memory(std::int64_t wanted, double available_bytes) {
  constexpr double kOther = 512e6;  // q, k, v, o, the program, and some air
  std::int64_t seqlen = wanted;
  const auto bytes = [](std::int64_t n) {
    return kOther + sizeof(float) * static_cast<double>(n) * static_cast<double>(n);
  };
  while (seqlen > 1024 && bytes(seqlen) > available_bytes) seqlen /= 2;
  return seqlen / 32 * 32;
}

double available_memory() {
  double available = std::numeric_limits<double>::infinity();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, unit; meminfo >> name;) {
    if (name == "MemAvailable:") {
      double kib = 0;
      if (meminfo >> kib) available = 1024 * kib;
      break;
    }
  }
  const auto limit = number_in("/sys/fs/cgroup/memory.max");  // absent or "max": no limit
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit - *used);
  return available;
}

}  // namespace strobe::demo
