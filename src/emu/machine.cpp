#include "emu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>

namespace strobe::emu {

Running& running() {
  thread_local Running r;
  return r;
}

World::World(const Launch& launch, Memory& memory) : launch_(launch), memory_(memory) {
  const std::uint32_t cta_count = launch.together ? launch.grid : 1;
  const std::uint32_t warps_per_cta = (launch.threads + kWarpLanes - 1) / kWarpLanes;
  const std::size_t actors = std::size_t{2} * cta_count * launch.threads;
  for (std::uint32_t c = 0; c < cta_count; ++c) {
    Cta& cta = *ctas_.emplace_back(std::make_unique<Cta>());
    cta.shared.resize(launch.shared_bytes);
    for (std::uint32_t w = 0; w < warps_per_cta; ++w) {
      Warp& warp = *warps_.emplace_back(std::make_unique<Warp>());
      warp.cta = &cta;
      warp.index = w;
      cta.warps.push_back(&warp);
      for (std::uint32_t i = w * kWarpLanes; i < std::min(launch.threads, (w + 1) * kWarpLanes);
           ++i) {
        Thread& t = *threads_.emplace_back(std::make_unique<Thread>());
        t.cta = &cta;
        t.warp = &warp;
        t.index = i;
        t.actor = static_cast<Actor>(threads_.size() - 1);
        t.clock.resize(actors);
        warp.lanes[t.lane()] = &t;
        warp.lane_mask |= 1u << t.lane();
      }
    }
  }
}

void World::begin(std::uint32_t first) {
  id_ = first + 1;
  state_ = launch_.seed * 0x2545F4914F6CDD1Dull + first;
  ready_.clear();
  polling_.clear();
  for (std::size_t c = 0; c < ctas_.size(); ++c) {
    Cta& cta = *ctas_[c];
    cta.id = first + static_cast<std::uint32_t>(c);
    std::fill(cta.shared.begin(), cta.shared.end(), 0xFF);  // NaN, whatever it is read as
    cta.shadow.resize(launch_.shared_bytes);
    cta.barriers = {};
    for (Warp* warp : cta.warps) {
      warp->runnable = 0;
      warp->collectives = {};
    }
  }
  alive_ = 0;
  for (auto& t : threads_) {
    std::fill(t->clock.begin(), t->clock.end(), 0);
    t->clock[t->actor] = 1;
    t->exited = false;
    t->waits_for = nullptr;
    t->copies.clear();
    t->open_group = 1;
    t->fence.clear();
    t->acquired.clear();
    t->last_tensor = nullptr;
    if (!t->fiber.start(entry, t.get())) {
      report_->add({HazardKind::kLimit, "no memory for a fiber's stack", first, t->index, Here()});
      abandoned_ = true;
      return;
    }
    ++alive_;
    set_runnable(*t);
  }
}

bool World::run(std::uint32_t first, Report& report) {
  report_ = &report;
  abandoned_ = false;
  begin(first);
  if (abandoned_) return false;
  const Running before = running();
  running() = {this, nullptr};
  Thread* next = pick();
  running().thread = next;
  Fiber::switch_to(host_, next->fiber);
  running() = before;
  counters_.ctas += ctas();
  return !abandoned_;
}

void World::entry(void* thread) {
  auto* t = static_cast<Thread*>(thread);
  World& world = *running().world;
  world.launch_.entry(world.launch_.params);
  world.finish();
  (void)t;
}

void World::leave() {
  Thread* self = running().thread;
  Fiber::switch_to(self->fiber, host_);
  __builtin_unreachable();
}

void World::fail(HazardKind kind, std::string message, const Here& here) {
  const Thread* t = running().thread;
  report_->add({kind, std::move(message), t->cta->id, t->index, here});
  abandoned_ = true;
  leave();
}

void World::set_runnable(Thread& t) {
  Warp& warp = *t.warp;
  if (warp.runnable == 0) {
    warp.ready_index = static_cast<std::uint32_t>(ready_.size());
    ready_.push_back(&warp);
  }
  warp.runnable |= 1u << t.lane();
}

void World::wake(Thread& t) {
  ++progress_;
  t.waits_for = nullptr;
  set_runnable(t);
}

// The next fiber: mostly another lane of the same warp, so that lanes meet at their collectives,
// sometimes any.
Thread* World::pick() {
  if (ready_.empty() && !polling_.empty() && polled_at_ != progress_) {
    polled_at_ = progress_;
    for (Thread* t : polling_) set_runnable(*t);
    polling_.clear();
  }
  if (ready_.empty()) return nullptr;
  const std::uint64_t r = random();
  const Thread* self = running().thread;
  Warp* warp = self ? self->warp : nullptr;
  if (!warp || warp->runnable == 0 || (r & 15) == 0) {
    warp = ready_[(r >> 8) % ready_.size()];
  }
  const int turn = static_cast<int>(r >> 59);
  const int lane = (std::countr_zero(std::rotr(warp->runnable, turn)) + turn) % 32;
  warp->runnable &= ~(1u << lane);
  if (warp->runnable == 0) {
    ready_.back()->ready_index = warp->ready_index;
    ready_[warp->ready_index] = ready_.back();
    ready_.pop_back();
  }
  Thread* t = warp->lanes[static_cast<std::size_t>(lane)];
  if (launch_.landing == Landing::kRandom && !t->copies.empty() && ((r >> 4) & 3) == 0) {
    land(*t, (r >> 16) % t->copies.size());
  }
  return t;
}

void World::switch_to_next() {
  Thread* self = running().thread;
  Thread* next = pick();
  if (!next) {
    report_->add({HazardKind::kDeadlock, deadlock_text(), self->cta->id, self->index,
                  self->waits_for ? self->waits_at : Here()});
    abandoned_ = true;
    leave();
  }
  if (next == self) return;
  ++counters_.switches;
  running().thread = next;
  Fiber::switch_to(self->fiber, next->fiber);
}

void World::block(const char* what, std::uint32_t id, const Here& here) {
  Thread& t = *running().thread;
  t.waits_for = what;
  t.waits_id = id;
  t.waits_at = here;
  switch_to_next();
}

void World::yield() {
  set_runnable(*running().thread);
  switch_to_next();
}

void World::poll(bool (*ready)(void*), void* argument, const char* what, const Here& here) {
  while (!ready(argument)) {
    polling_.push_back(running().thread);
    block(what, 0, here);
  }
  running().thread->waits_for = nullptr;
  ++progress_;
}

void World::finish() {
  Thread& t = *running().thread;
  if (!t.copies.empty()) {
    fail(HazardKind::kLeak,
         fmt::format("{} cp.async copies were never waited for", t.copies.size()), Here());
  }
  t.exited = true;
  if (--alive_ > 0) {
    switch_to_next();
  } else {
    check_leaks();
    leave();
  }
  __builtin_unreachable();
}

void World::check_leaks() {
  for (auto& cta : ctas_) {
    for (int id = 0; id < kNamedBarriers; ++id) {
      const NamedBarrier& b = cta->barriers[static_cast<std::size_t>(id)];
      if (b.arrived == 0) continue;
      report_->add({HazardKind::kLeak,
                    fmt::format("named barrier {} still holds {} of {} arrivals when its CTA ends",
                                id, b.arrived, b.expected),
                    cta->id, 0, b.here});
      abandoned_ = true;
    }
  }
}

std::string World::deadlock_text() const {
  std::string text = "no thread can go on:";
  std::string last;
  std::uint32_t count = 0;
  const auto flush = [&] {
    if (count > 0) text += fmt::format("\n  {} x {}", count, last);
  };
  for (const auto& t : threads_) {
    std::string line = t->exited
                           ? fmt::format("CTA {} warp {}: exited", t->cta->id, t->warp->index)
                           : fmt::format("CTA {} warp {}: waits for {} {} at {}:{}", t->cta->id,
                                         t->warp->index, t->waits_for ? t->waits_for : "nothing",
                                         t->waits_id, t->waits_at.file, t->waits_at.line);
    if (line != last) {
      flush();
      last = std::move(line);
      count = 0;
    }
    ++count;
  }
  flush();
  return text;
}

void World::collective(const char* what, std::uint32_t mask, void* mine, Execute execute,
                       const Here& here) {
  Thread& t = *running().thread;
  Warp& warp = *t.warp;
  const std::uint32_t me = 1u << t.lane();
  mask &= warp.lane_mask;
  if (!(mask & me)) {
    fail(HazardKind::kDivergence,
         fmt::format("{}: lane {} is not in its own mask {:#x}", what, t.lane(), mask), here);
  }
  Collective* open = nullptr;
  Collective* unused = nullptr;
  for (Collective& c : warp.collectives) {
    if (!c.what) {
      unused = &c;
    } else if (c.mask & mask) {
      open = &c;
    }
  }
  if (open && (std::strcmp(open->what, what) != 0 || open->mask != mask ||
               open->here.line != here.line || std::strcmp(open->here.file, here.file) != 0)) {
    fail(HazardKind::kDivergence,
         fmt::format("lane {} reached {} (mask {:#x}), others of warp {} wait at {} (mask {:#x}), "
                     "{}:{}",
                     t.lane(), what, mask, warp.index, open->what, open->mask, open->here.file,
                     open->here.line),
         here);
  }
  if (!open) {
    open = unused;
    *open = {what, mask, 0, here, {}};
  }
  open->args[t.lane()] = mine;
  open->arrived |= me;
  if (open->arrived != mask) {
    block(what, warp.index, here);
    return;
  }
  void* args[kWarpLanes];
  std::copy(open->args.begin(), open->args.end(), args);
  open->what = nullptr;
  execute(*this, warp, args, here);
  for (std::uint32_t others = mask & ~me; others != 0; others &= others - 1) {
    wake(*warp.lanes[static_cast<std::size_t>(std::countr_zero(others))]);
  }
}

std::uint16_t World::site(const Here& here) {
  const auto hash = (reinterpret_cast<std::uintptr_t>(here.file) >> 4) ^
                    (static_cast<std::uintptr_t>(here.line) * 31);
  CachedSite& cached = site_cache_[hash % site_cache_.size()];
  if (cached.file == here.file && cached.line == here.line) return cached.site;
  std::size_t i = 0;
  while (i < sites_.size() && !(sites_[i].file == here.file && sites_[i].line == here.line)) ++i;
  if (i == sites_.size()) sites_.push_back(here);
  cached = {here.file, here.line, static_cast<std::uint16_t>(i & 0x7FFF)};
  return cached.site;
}

std::string World::site_name(std::uint16_t site) const {
  if (site >= sites_.size()) return "?";
  return fmt::format("{}:{}", sites_[site].file, sites_[site].line);
}

std::string World::actor_name(Actor actor) const {
  const bool copy = actor >= threads();
  const Thread& t = *threads_[copy ? actor - threads() : actor];
  return fmt::format("{}CTA {} thread {}", copy ? "cp.async of " : "", t.cta->id, t.index);
}

Access World::access(Thread& by, const Here& here, Tick copy_group) {
  const Actor first = static_cast<Actor>(by.actor - by.lane());
  if (copy_group > 0) {
    return {id_,        static_cast<Actor>(by.actor + threads()),
            copy_group, 0,
            0,          threads(),
            &by.clock,  site(here),
            false,      false};
  }
  return {id_,       by.actor,  by.tick(),  first, static_cast<Actor>(first + kWarpLanes),
          threads(), &by.clock, site(here), true,  false};
}

std::string World::conflict_text(const Conflict& c, bool write) const {
  const Epoch& e = c.earlier;
  const std::string who = e.world == id_
                              ? fmt::format("{} at {}", actor_name(e.actor), site_name(e.site))
                              : fmt::format("world {} (another CTA)", e.world);
  return fmt::format("{} after {} by {}, and nothing orders the two", write ? "write" : "read",
                     c.write ? "a write" : "a read", who);
}

void World::check_shared(std::uint32_t address, std::uint32_t bytes, bool write, const Here& here,
                         Thread& by, Tick copy_group) {
  if (address % bytes != 0) {
    fail(HazardKind::kMisaligned,
         fmt::format("shared address {} is no multiple of {}", address, bytes), here);
  }
  if (address < kSharedBase || address - kSharedBase + bytes > launch_.shared_bytes) {
    fail(HazardKind::kOutOfBounds,
         fmt::format("shared byte {} of {}", static_cast<std::int64_t>(address) - kSharedBase,
                     launch_.shared_bytes),
         here);
  }
  const Access a = access(by, here, copy_group);
  Shadow& shadow = by.cta->shadow;
  Conflict conflict;
  if (write) {
    counters_.shared_bytes_written += bytes;
    conflict = shadow.write(address - kSharedBase, bytes, a);
  } else {
    counters_.shared_bytes_read += bytes;
    bool unwritten = false;
    conflict =
        shadow.read(address - kSharedBase, bytes, a, &unwritten, &counters_.cross_warp_bytes);
    if (unwritten) {
      fail(HazardKind::kUninitialised,
           fmt::format("shared bytes {} to {}", address - kSharedBase,
                       address - kSharedBase + bytes - 1),
           here);
    }
  }
  if (conflict.found) {
    fail(HazardKind::kRace,
         fmt::format("shared byte {}: {}", address - kSharedBase, conflict_text(conflict, write)),
         here);
  }
}

void World::check_global(const void* address, std::uint32_t bytes, bool write, bool atomic,
                         const Here& here, Thread& by, Tick copy_group) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at % bytes != 0) {
    fail(HazardKind::kMisaligned,
         fmt::format("global address {:#x} is no multiple of {}", at, bytes), here);
  }
  Tensor* t =
      by.last_tensor && by.last_tensor->holds(at, bytes) ? by.last_tensor : memory_.find(at, bytes);
  if (!t) fail(HazardKind::kOutOfBounds, memory_.describe(at), here);
  by.last_tensor = t;
  if (write && t->kind == TensorKind::kInput) {
    fail(HazardKind::kRace, fmt::format("write to input {}", t->traffic.name), here);
  }
  Access a = access(by, here, copy_group);
  a.atomic = atomic;
  Conflict conflict;
  bool unwritten = false;
  const std::uint64_t offset = at - reinterpret_cast<std::uintptr_t>(t->base);
  {
    const std::lock_guard lock(t->mutex);
    (atomic  ? t->traffic.bytes_reduced
     : write ? t->traffic.bytes_written
             : t->traffic.bytes_read) += bytes;
    if (t->kind != TensorKind::kInput) {
      std::uint64_t ignored = 0;
      if (!write || atomic) {
        conflict = t->shadow.read(offset, bytes, a, &unwritten, &ignored);
      }
      if (write && !conflict.found) conflict = t->shadow.write(offset, bytes, a);
    }
  }
  if (unwritten) {
    fail(HazardKind::kUninitialised, fmt::format("byte {} of {}", offset, t->traffic.name), here);
  }
  if (conflict.found) {
    fail(HazardKind::kRace,
         fmt::format("byte {} of {}: {}", offset, t->traffic.name, conflict_text(conflict, write)),
         here);
  }
  if (write) ++progress_;
}

void World::land(Thread& t, std::size_t index) {
  const Copy copy = t.copies[index];
  t.copies[index] = t.copies.back();
  t.copies.pop_back();
  unsigned char* to = shared_at(copy.to, t);
  if (copy.from) {
    std::memcpy(to, copy.from, copy.bytes);
  } else {
    std::memset(to, 0, copy.bytes);
  }
}

void World::land_through(Thread& t, Tick group) {
  for (std::size_t i = t.copies.size(); i-- > 0;) {
    if (t.copies[i].group <= group) land(t, i);
  }
  Tick& known = t.clock[static_cast<std::size_t>(t.actor) + threads()];
  known = std::max(known, group);
}

namespace {

// Every workers-th CTA from `worker` on; each is seeded by its own index.
void run_ctas(const Launch& launch, Memory& memory, std::uint32_t worker, std::uint32_t workers,
              std::atomic<bool>& stop, Report& report) {
  World world(launch, memory);
  for (std::uint32_t cta = worker; cta < launch.grid && !stop; cta += workers) {
    if (!world.run(cta, report)) stop = true;
  }
  report.counters.add(world.counters());
}

}  // namespace

void run(const Launch& launch, Memory& memory, Report& report) {
  if (launch.threads == 0 || launch.threads > kMaxThreads ||
      launch.shared_bytes > kMaxSharedBytes) {
    report.add({HazardKind::kLimit,
                fmt::format("{}: {} threads (at most {}), {} bytes of shared memory (at most {})",
                            launch.name, launch.threads, kMaxThreads, launch.shared_bytes,
                            kMaxSharedBytes),
                0, 0, Here()});
    return;
  }
  if (launch.together) {
    if (launch.grid > 0) {
      World world(launch, memory);
      world.run(0, report);
      report.counters.add(world.counters());
    }
  } else {
    const auto workers = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(launch.host_threads, 1, std::max<std::int64_t>(1, launch.grid)));
    std::vector<Report> reports(workers);
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (std::uint32_t w = 1; w < workers; ++w) {
      threads.emplace_back([&, w] { run_ctas(launch, memory, w, workers, stop, reports[w]); });
    }
    run_ctas(launch, memory, 0, workers, stop, reports[0]);
    for (std::thread& t : threads) t.join();
    for (std::uint32_t w = 0; w < workers; ++w) {
      for (Hazard& h : reports[w].hazards) report.add(std::move(h));
      report.hazards_dropped += reports[w].hazards_dropped;
      report.counters.add(reports[w].counters);
    }
  }
  memory.end_launch();
}

}  // namespace strobe::emu
