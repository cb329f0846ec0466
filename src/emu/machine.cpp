#include "emu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "emu/world.h"

namespace strobe::emu {
namespace {

// Adds up what CTAs have found, in the order of their indices and up to the first that met a
// hazard, so that the sum does not depend on which host thread ran what.
class Ledger {
 public:
  Ledger(Memory& memory, Sites& sites, Report& report)
      : memory_(memory), sites_(sites), report_(report) {}

  bool stopped() const { return stopped_; }

  // Of the world whose first CTA is `first`, and which has `ctas` of them.
  void add(std::uint32_t first, std::uint32_t ctas, Tally tally) {
    const std::lock_guard lock(mutex_);
    if (!tally.hazards.empty()) stopped_ = true;
    waiting_.emplace(first, std::move(tally));
    for (auto t = waiting_.find(next_); t != waiting_.end() && !closed_;
         t = waiting_.find(next_ += ctas)) {
      closed_ = !t->second.hazards.empty();
      take(t->second);
      waiting_.erase(t);
    }
  }

 private:
  void take(Tally& tally) {
    for (Hazard& h : tally.hazards) report_.add(std::move(h));
    report_.counters.add(tally.counters);
    memory_.add_traffic(tally.traffic);
    for (std::size_t site = 0; site < tally.hits.size(); ++site) {
      if (tally.hits[site] > 0)
        report_.add_hits(sites_.place(static_cast<Site>(site)), tally.hits[site]);
    }
  }

  std::mutex mutex_;
  Memory& memory_;
  Sites& sites_;
  Report& report_;
  std::map<std::uint32_t, Tally> waiting_;
  std::uint32_t next_ = 0;
  bool closed_ = false;
  std::atomic<bool> stopped_ = false;
};

}  // namespace

void run(const Launch& launch, Memory& memory, Report& report) {
  if (launch.threads == 0 || launch.threads > kMaxThreads ||
      launch.shared_bytes > kMaxSharedBytes) {
    report.add({HazardKind::kLimit,
                fmt::format("{}: {} threads (at most {}), {} bytes of shared "
                            "memory (at most {})",
                            launch.name, launch.threads, kMaxThreads, launch.shared_bytes,
                            kMaxSharedBytes),
                0, 0, Here()});
    return;
  }
  if (launch.grid == 0) return;
  memory.begin_launch();
  Sites sites;
  Ledger ledger(memory, sites, report);
  std::atomic<std::uint32_t> next = 0;
  const auto work = [&] {
    World world(launch, memory, sites);
    while (!ledger.stopped()) {
      const std::uint32_t first = next.fetch_add(world.ctas());
      if (first >= launch.grid) break;
      ledger.add(first, world.ctas(), world.run(first));
    }
  };
  const std::uint32_t worlds = launch.together ? 1 : launch.grid;
  const auto workers =
      std::min(static_cast<std::uint32_t>(std::max(1, launch.host_threads)), worlds);
  std::vector<std::thread> threads;
  for (std::uint32_t w = 1; w < workers; ++w) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  memory.end_launch();
}

}  // namespace strobe::emu
