// Uses the pool, then ends in the way that the first argument names. Must return 0, and in time.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "cpu/parallel.h"

namespace {

std::atomic<std::int64_t> sum = 0;
std::atomic<bool> never = false;

void add_up() {
  sum = 0;
  strobe::cpu::parallel_for(std::nullopt, 3, 100, [](std::int64_t index, int) { sum += index; });
  if (sum != 4950) {
    std::fprintf(stderr, "sum is %lld, not 4950\n", static_cast<long long>(sum));
    std::_Exit(1);
  }
}

// Constructed before anything of the library may be: destroyed after it.
struct AddsUpAtExit {
  bool armed = false;
  ~AddsUpAtExit() {
    if (armed) add_up();
  }
};
AddsUpAtExit adds_up_at_exit __attribute__((init_priority(101)));

// One of two threads exits in the middle of a loop, while the other never returns from its body.
void exit_from(bool caller) {
  static std::atomic<bool> caller_exits;
  caller_exits = caller;
  strobe::cpu::parallel_for(std::nullopt, 2, 2, [](std::int64_t, int worker) {
    if ((worker == 0) == caller_exits) std::exit(0);
    while (!never) std::this_thread::yield();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  add_up();
  if (std::strcmp(way, "return") == 0) return 0;
  if (std::strcmp(way, "static_destructor") == 0) {
    adds_up_at_exit.armed = true;
    return 0;
  }
  if (std::strcmp(way, "exit_in_caller") == 0) exit_from(true);
  if (std::strcmp(way, "exit_in_helper") == 0) exit_from(false);
  if (std::strcmp(way, "exit_beside_loop") == 0) {
    std::atomic<bool> inside = false;
    std::thread([&inside] {
      strobe::cpu::parallel_for(std::nullopt, 3, 3, [&inside](std::int64_t, int) {
        inside = true;
        while (!never) std::this_thread::yield();
      });
    }).detach();
    while (!inside) std::this_thread::yield();
    std::exit(0);
  }
  std::fprintf(stderr, "unknown way to end: '%s'\n", way);
  return 1;
}
