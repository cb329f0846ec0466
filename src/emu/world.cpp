#include "emu/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace strobe::emu {

void Thread::release_to(Clock& to) {
  to.join(clock);
  ++clock.own(actor());
}

const Collective* Thread::collective() const {
  for (std::uint32_t i = 0; i < warp->open_count; ++i) {
    if (warp->open[i].arrived >> lane() & 1) return &warp->open[i];
  }
  return nullptr;
}

std::string Thread::state() const {
  if (exited) return "ended";
  const Collective* open = collective();
  return open ? fmt::format("waits for {} of warp {} at {}:{}", open->op->name, warp->index,
                            open->here.file, open->here.line)
              : fmt::format("waits for {} {} at {}:{}", waits_for, waits_id, waits_at.file,
                            waits_at.line);
}

World::World(const Launch& launch, Memory& memory, Sites& sites)
    : launch_(launch), memory_(memory), sites_(sites), site_cache_(sites) {
  const std::uint32_t cta_count = launch.together ? launch.grid : 1;
  for (std::uint32_t c = 0; c < cta_count; ++c) {
    Cta& cta = *ctas_.emplace_back(std::make_unique<Cta>());
    cta.shared.resize(launch.shared_bytes);
    for (std::uint32_t i = 0; i < launch.threads; ++i) {
      if (i % kWarpLanes == 0) {
        Warp& warp = *warps_.emplace_back(std::make_unique<Warp>());
        warp.cta = &cta;
        warp.index = i / kWarpLanes;
        cta.warps.push_back(&warp);
      }
      Thread& t = *threads_.emplace_back(std::make_unique<Thread>());
      t.cta = &cta;
      t.warp = cta.warps.back();
      t.index = i;
      t.copies.cta = &cta;
      t.copies.actor = static_cast<Actor>(launch.threads + i);
      t.warp->lanes[t.lane()] = &t;
      t.warp->lane_mask |= 1u << t.lane();
    }
  }
}

void World::reset_clock(Clock& clock, const Thread& t) const {
  clock.reset(ids_, t.cta->shadow_id(), std::size_t{2} * launch_.threads);
}

// ---- A run
// -----------------------------------------------------------------------------------

bool World::begin(std::uint32_t first) {
  tally_ = {};
  ids_ = {first + 1, ctas()};
  state_ = launch_.seed * 0x2545F4914F6CDD1Dull + first;
  restless_ = (16u << 2 * (random() & 3)) - 1;
  ready_.clear();
  polling_.clear();
  busy_.clear();
  for (std::size_t c = 0; c < ctas_.size(); ++c) {
    Cta& cta = *ctas_[c];
    cta.id = first + static_cast<std::uint32_t>(c);
    std::fill(cta.shared.begin(), cta.shared.end(),
              0xFF);  // NaN, whatever it is read as
    cta.shadow.resize(launch_.shared_bytes);
    cta.barriers = {};
    for (Warp* warp : cta.warps) {
      warp->runnable = warp->exited = warp->open_count = 0;
      warp->bank_logged = false;
    }
  }
  alive_ = static_cast<std::uint32_t>(threads_.size());
  for (auto& t : threads_) {
    begin(*t);
    if (!t->fiber.start(entry, t.get())) {
      tally_.hazards.push_back(
          {HazardKind::kLimit, "no memory for a fiber's stack", first, t->index, Here()});
      return false;
    }
    set_runnable(*t->warp, 1u << t->lane());
  }
  return true;
}

void World::begin(Thread& t) {
  reset_clock(t.clock, t);
  t.clock.own(t.actor()) = 1;
  t.exited = false;
  t.waits_for = "nothing";
  t.copies.open = 1;
  t.copies.issued = 0;
  t.copies.pending.clear();
  t.bank_log.clear();
  t.fence.clear();
  t.acquired.clear();
  t.last_tensor = nullptr;
}

Tally World::run(std::uint32_t first) {
  if (begin(first)) {
    const Running before = running;
    running = {this, nullptr};
    Thread* next = pick();
    running.thread = next;
    Fiber::switch_to(host_, next->fiber);
    running = before;
    for (auto& t : threads_) t->fiber.give_up(host_);
  }
  tally_.counters.ctas += ctas();
  return std::move(tally_);
}

void World::entry(void*) {
  World& world = *running.world;
  world.launch_.entry(world.launch_.params);
  world.finish();
}

void World::leave() { Fiber::leave_for(running.thread->fiber, host_); }

void World::fail(HazardKind kind, std::string message, const Here& here, const Thread* by) {
  if (!by) by = running.thread;
  tally_.hazards.push_back({kind, std::move(message), by->cta->id, by->index, here});
  leave();
}

void World::flaw(HazardKind kind, std::string message, const Here& here, const Thread& by) {
  if (!launch_.go_on) fail(kind, std::move(message), here, &by);
  if (tally_.hazards.size() < Report::kMaxHazards)
    tally_.hazards.push_back({kind, std::move(message), by.cta->id, by.index, here});
}

void World::finish() {
  Thread& t = *running.thread;
  Warp& warp = *t.warp;
  const std::uint32_t me = 1u << t.lane();
  if (t.copies.issued > t.clock.own(t.copies.actor)) {
    fail(HazardKind::kLeak, "ends with cp.async copies that it never waited for",
         t.copies_issued_at);
  }
  for (std::uint32_t i = 0; i < warp.open_count; ++i) {
    const Collective& c = warp.open[i];
    if (!(c.mask & me)) continue;
    fail(HazardKind::kDivergence,
         fmt::format("lane {} ends while others of warp {} wait for it at {}", t.lane(), warp.index,
                     c.op->name),
         c.here);
  }
  t.exited = true;
  warp.exited |= me;
  if (--alive_ == 0) {
    check_leaks();
    leave();
  }
  Thread* next = pick();
  if (!next) {
    report_deadlock();
    leave();
  }
  ++counters().switches;
  running.thread = next;
  Fiber::leave_for(t.fiber, next->fiber);
}

void World::check_leaks() {
  for (auto& cta : ctas_) {
    for (int id = 0; id < kNamedBarriers; ++id) {
      const NamedBarrier& b = cta->barriers[static_cast<std::size_t>(id)];
      if (b.arrived == 0) continue;
      tally_.hazards.push_back({HazardKind::kLeak,
                                fmt::format("named barrier {} still holds {} "
                                            "of {} arrivals when its CTA ends",
                                            id, b.arrived, b.expected),
                                cta->id, b.first_thread, b.here});
    }
    for (Warp* warp : cta->warps) count_banks(*warp);
  }
}

// ---- Scheduling
// ------------------------------------------------------------------------------

void World::set_runnable(Warp& warp, std::uint32_t lanes) {
  if (warp.runnable == 0) {
    warp.ready_index = static_cast<std::uint32_t>(ready_.size());
    ready_.push_back(&warp);
  }
  warp.runnable |= lanes;
}

void World::wake(Thread& t) {
  ++progress_;
  set_runnable(*t.warp, 1u << t.lane());
}

// The next fiber: mostly another lane of the same warp, so that lanes meet at their collectives,
// sometimes any.
Thread* World::pick() {
  if (ready_.empty()) {
    if (polling_.empty() || polled_at_ == progress_) return nullptr;
    polled_at_ = progress_;
    for (Thread* t : polling_) set_runnable(*t->warp, 1u << t->lane());
    polling_.clear();
  }
  const std::uint64_t r = random();
  if (launch_.landing == Landing::kRandom && !busy_.empty() && ((r >> 4) & 3) == 0) {
    AsyncQueue& queue = *busy_[(r >> 32) % busy_.size()];
    land(queue, (r >> 16) % queue.pending.size());
  }
  Thread* self = running.thread;
  Warp* warp = self ? self->warp : nullptr;
  if (!warp || warp->runnable == 0 || (r & restless_) == 0) {
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
  return warp->lanes[static_cast<std::size_t>(lane)];
}

void World::stop_deadlocked() {
  report_deadlock();
  leave();
}

void World::block(const char* what, std::uint32_t id, const Here& here) {
  Thread& self = *running.thread;
  self.waits_for = what;
  self.waits_id = id;
  self.waits_at = here;
  suspend(self);
}

void World::poll(bool (*ready)(void*), void* argument, const char* what, std::uint32_t id,
                 const Here& here) {
  while (!ready(argument)) {
    polling_.push_back(running.thread);
    block(what, id, here);
  }
  ++progress_;
}

void World::report_deadlock() {
  std::string text = "no thread can go on:";
  const Thread* blocked = nullptr;
  for (std::size_t i = 0; i < threads_.size();) {
    const Thread& first = *threads_[i];
    if (!blocked && !first.exited) blocked = &first;
    const std::string what = first.state();
    std::uint32_t last = first.index;
    while (++i < threads_.size() && threads_[i]->cta == first.cta && threads_[i]->state() == what)
      last = threads_[i]->index;
    text += fmt::format("\n  CTA {} threads {} to {}: {}", first.cta->id, first.index, last, what);
  }
  if (!blocked) return;
  const Collective* open = blocked->collective();
  tally_.hazards.push_back({HazardKind::kDeadlock, std::move(text), blocked->cta->id,
                            blocked->index, open ? open->here : blocked->waits_at});
}

// ---- Collectives
// -----------------------------------------------------------------------------

namespace {

bool same_place(const Here& a, const Here& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace

// The collective that the running lane reached, open already or opened now.
Collective& World::join_collective(const CollectiveOp& op, std::uint32_t mask, const Here& here) {
  const Thread& t = *running.thread;
  Warp& warp = *t.warp;
  if (!(mask >> t.lane() & 1)) {
    fail(HazardKind::kDivergence,
         fmt::format("{}: lane {} is not in its own mask {:#x}", op.name, t.lane(), mask), here);
  }
  for (std::uint32_t i = 0; i < warp.open_count; ++i) {
    Collective& c = warp.open[i];
    if (!(c.mask & mask)) continue;
    if (c.op == &op && c.mask == mask && same_place(c.here, here)) return c;
    fail(HazardKind::kDivergence,
         fmt::format("lane {} reached {} (mask {:#x}), others of warp {} wait "
                     "at {} (mask {:#x}), "
                     "{}:{}",
                     t.lane(), op.name, mask, warp.index, c.op->name, c.mask, c.here.file,
                     c.here.line),
         here);
  }
  if (op.whole && warp.lane_mask != 0xFFFFFFFFu) {
    fail(HazardKind::kDivergence, fmt::format("{}: warp {} has no 32 lanes", op.name, warp.index),
         here);
  }
  if (mask & warp.exited) {
    fail(HazardKind::kDivergence,
         fmt::format("{}: mask {:#x} has lanes of warp {} that have ended: {:#x}", op.name, mask,
                     warp.index, mask & warp.exited),
         here);
  }
  Collective& c = warp.open[warp.open_count++];
  c = {&op, mask, 0, here};
  return c;
}

void World::execute(const CollectiveOp& op, Warp& warp, std::uint32_t mask, const Here& here) {
  if (warp.bank_logged && mask == warp.lane_mask) count_banks(warp);
  hit(here, static_cast<std::uint64_t>(std::popcount(mask)));
  op.execute(*this, warp, mask, here);
  ++progress_;
}

}  // namespace strobe::emu
