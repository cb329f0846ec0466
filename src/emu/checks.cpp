// The checks of every access to memory, and the landing of asynchronous ones.
#include <fmt/format.h>

#include <bit>
#include <mutex>
#include <utility>

#include "emu/world.h"

namespace strobe::emu {

Site World::hit(const Here& here, std::uint64_t count) {
  const Site site = site_cache_.number(here);
  if (tally_.hits.size() <= site) tally_.hits.resize(std::size_t{site} + 1);
  tally_.hits[site] += count;
  return site;
}

Access World::access(const Thread& by, const Here& here, const AsyncQueue* queue) {
  Access a;
  a.cta = by.cta->shadow_id();
  a.known = &by.clock;
  a.site = hit(here, 1);
  a.threads = static_cast<Actor>(launch_.threads);
  a.atomic = false;
  if (queue) {
    a.actor = queue->actor;
    a.lanes = 1;
    a.tick = queue->open;
    a.in_order = false;
  } else {
    a.actor = static_cast<Actor>(by.index - by.lane());
    a.lanes = 1u << by.lane();
    a.tick = by.clock.own(by.actor());
    a.in_order = true;
  }
  return a;
}

std::string World::actor_name(CtaId cta, Actor actor) const {
  const auto threads = static_cast<Actor>(launch_.threads);
  return actor < threads ? fmt::format("CTA {} thread {}", cta - 1, actor)
                         : fmt::format("cp.async of CTA {} thread {}", cta - 1, actor - threads);
}

std::string World::conflict_text(const Conflict& c, bool write) const {
  const Epoch& e = c.earlier;
  const auto first = static_cast<Actor>(e.actor + std::countr_zero(e.lanes));
  return fmt::format("{} after {} by {} at {}, and nothing orders the two",
                     write ? "write" : "read", e.write ? "a write" : "a read",
                     actor_name(e.cta, first), sites_.name(e.site));
}

void World::check_shared(Thread& by, std::uint32_t address, std::uint32_t bytes, bool write,
                         const Here& here, const AsyncQueue* queue) {
  if (address % bytes != 0) {
    fail(HazardKind::kMisaligned,
         fmt::format("shared address {} is no multiple of {}", address, bytes), here, &by);
  }
  const std::uint32_t at = address - kSharedBase;
  if (address < kSharedBase || std::uint64_t{at} + bytes > launch_.shared_bytes) {
    fail(HazardKind::kOutOfBounds,
         fmt::format("shared byte {} of {}", static_cast<std::int64_t>(address) - kSharedBase,
                     launch_.shared_bytes),
         here, &by);
  }
  const Access a = access(by, here, queue);
  Conflict conflict;
  bool unwritten = false;
  if (write) {
    counters().shared_bytes_written += bytes;
    conflict = by.cta->shadow.write(at, bytes, a);
  } else {
    counters().shared_bytes_read += bytes;
    conflict = by.cta->shadow.read(at, bytes, a, &unwritten, &counters().cross_warp_bytes);
  }
  if (conflict.found) {
    std::string text = fmt::format("shared byte {}: {}", at, conflict_text(conflict, write));
    flaw(HazardKind::kRace, std::move(text), here, by);
  }
  if (unwritten) {
    flaw(HazardKind::kUninitialised, fmt::format("shared bytes {} to {}", at, at + bytes - 1), here,
         by);
  }
}

Tensor& World::check_global(Thread& by, const void* address, std::uint32_t bytes, bool write,
                            bool atomic, const Here& here, const AsyncQueue* queue) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at % bytes != 0) {
    fail(HazardKind::kMisaligned,
         fmt::format("global address {:#x} is no multiple of {}", at, bytes), here, &by);
  }
  Tensor* t = by.last_tensor;
  if (!t || !t->holds(at, bytes)) t = memory_.find(at, bytes);
  if (!t) fail(HazardKind::kOutOfBounds, memory_.describe(at), here, &by);
  by.last_tensor = t;
  if (tally_.traffic.size() <= t->number) tally_.traffic.resize(t->number + 1);
  TensorTraffic& traffic = tally_.traffic[t->number];
  (atomic && write ? traffic.bytes_reduced
   : write         ? traffic.bytes_written
                   : traffic.bytes_read) += bytes;
  if (t->kind == TensorKind::kInput) {
    if (write) fail(HazardKind::kRace, "write to input " + t->traffic.name, here, &by);
    hit(here, 1);
    return *t;
  }
  if (write) ++progress_;
  Access a = access(by, here, queue);
  a.atomic = atomic;
  Conflict conflict;
  bool unwritten = false;
  std::uint64_t ignored = 0;
  const std::uint64_t offset = at - reinterpret_cast<std::uintptr_t>(t->base);
  {
    const std::lock_guard lock(t->mutex);
    if (!write || atomic) conflict = t->shadow.read(offset, bytes, a, &unwritten, &ignored);
    if (write && !conflict.found) conflict = t->shadow.write(offset, bytes, a);
  }
  if (conflict.found) {
    std::string text =
        fmt::format("byte {} of {}: {}", offset, t->traffic.name, conflict_text(conflict, write));
    flaw(HazardKind::kRace, std::move(text), here, by);
  }
  if (unwritten) {
    flaw(HazardKind::kUninitialised, fmt::format("byte {} of {}", offset, t->traffic.name), here,
         by);
  }
  return *t;
}

// ---- Asynchronous operations
// ------------------------------------------------------------------

void World::issue(AsyncQueue& queue, const Effect& effect) {
  queue.issued = effect.tick;
  if (launch_.landing == Landing::kImmediate) {
    effect.land(*queue.cta, effect);
    return;
  }
  if (queue.pending.empty()) {
    queue.busy_index = static_cast<std::uint32_t>(busy_.size());
    busy_.push_back(&queue);
  }
  queue.pending.push_back(effect);
}

void World::land(AsyncQueue& queue, std::size_t index) {
  const Effect effect = queue.pending[index];
  effect.land(*queue.cta, effect);
  queue.pending[index] = queue.pending.back();
  queue.pending.pop_back();
  if (!queue.pending.empty()) return;
  busy_.back()->busy_index = queue.busy_index;
  busy_[queue.busy_index] = busy_.back();
  busy_.pop_back();
}

void World::land_through(AsyncQueue& queue, Tick tick, Thread& t) {
  for (std::size_t i = queue.pending.size(); i-- > 0;) {
    if (queue.pending[i].tick <= tick) land(queue, i);
  }
  Tick& known = t.clock.own(queue.actor);
  if (known < tick) known = tick;
}

}  // namespace strobe::emu
