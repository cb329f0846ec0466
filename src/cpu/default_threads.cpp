// How many threads a plan uses when nobody says.
#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "cpu/loop.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

// STROBE_NUM_THREADS, or 0 where it is not a positive number.
int threads_from_environment() {
  const char* text = std::getenv("STROBE_NUM_THREADS");
  if (!text) return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value <= 0) return 0;
  return static_cast<int>(std::min<long>(value, kMaxThreads));
}

int cpus_of_affinity_mask() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more CPUs than the set holds
}

// CPUs that a cgroup v2 cpu.max file allows ("max 100000", "150000 100000"), rounded up; INT_MAX
// where it sets no limit.
int cpus_of_quota_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (!file) return INT_MAX;
  long long quota = 0, period = 0;
  const int fields = std::fscanf(file, "%lld %lld", &quota, &period);
  std::fclose(file);
  if (fields != 2 || quota <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::min<long long>((quota + period - 1) / period, INT_MAX));
}

// The tightest quota of this process's cgroup and its ancestors.
int cpus_of_cgroup() {
  std::FILE* file = std::fopen("/proc/self/cgroup", "r");
  if (!file) return INT_MAX;
  std::string group;
  char line[4096];
  while (std::fgets(line, sizeof(line), file)) {
    if (std::strncmp(line, "0::/", 4) == 0) group.assign(line + 3, std::strcspn(line + 3, "\n"));
  }
  std::fclose(file);
  int cpus = INT_MAX;
  while (!group.empty()) {
    cpus = std::min(cpus, cpus_of_quota_file("/sys/fs/cgroup" + group + "/cpu.max"));
    group.resize(group.size() > 1 ? std::max<std::size_t>(group.rfind('/'), 1) : 0);
  }
  return cpus;
}

}  // namespace

int default_threads() {
  if (const int threads = threads_from_environment()) return threads;
  static const int quota = cpus_of_cgroup();
  return std::clamp(std::min(cpus_of_affinity_mask(), quota), 1, kMaxThreads);
}

}  // namespace strobe::cpu
