// Vector clocks: what one actor knows of the progress of all others.
//
// An actor is a thread, or what performs a thread's asynchronous operations. Its tick is a number
// that grows; a clock that holds tick t of an actor knows that everything the actor did up to t is
// done. Actors are numbered within their CTA. CTAs that run together, and so may order each other,
// are a world; a clock keeps the ticks of its own CTA and shares those of the others, so that
// worlds of many CTAs stay affordable.
#ifndef STROBE_SRC_EMU_CLOCK_H_
#define STROBE_SRC_EMU_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strobe::emu {

using Tick = std::uint32_t;
using Actor = std::uint16_t;
// A CTA as shadows know it: its index + 1; 0 is the host, whose accesses come before all others.
using CtaId = std::uint32_t;
constexpr CtaId kHost = 0;

// The CTAs of one world: [first, first + ctas).
struct WorldIds {
  CtaId first = 0;
  std::uint32_t ctas = 0;
  bool holds(CtaId id) const { return id - first < ctas; }
  bool operator==(const WorldIds&) const = default;
};

class Clock {
 public:
  // Knows nothing yet. `actors` is the number of actors of each CTA.
  void reset(const WorldIds& world, CtaId home, std::size_t actors);
  void clear() { world_.ctas = 0; }
  bool empty() const { return world_.ctas == 0; }

  const WorldIds& world() const { return world_; }
  CtaId home() const { return home_; }
  Tick own(Actor a) const { return own_[a]; }
  Tick& own(Actor a) { return own_[a]; }
  // Of any CTA of the world.
  Tick of(CtaId cta, Actor a) const {
    if (cta == home_) return own_[a];
    const std::size_t i = cta - world_.first;
    return i < others_.size() && others_[i] ? (*others_[i])[a] : 0;
  }
  // Learns all that `from` knows; nothing when that is of another world.
  void join(const Clock& from);

 private:
  using Ticks = std::vector<Tick>;
  using Shared = std::shared_ptr<const Ticks>;
  void join_other(CtaId cta, const Ticks& ticks, const Shared* shared);

  WorldIds world_;
  CtaId home_ = kHost;
  Ticks own_;
  std::vector<Shared> others_;  // by CTA of the world, as far as anything is known
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_CLOCK_H_
