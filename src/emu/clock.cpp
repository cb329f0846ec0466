#include "emu/clock.h"

#include <algorithm>
#include <cstddef>

namespace strobe::emu {
namespace {

void raise(std::vector<Tick>& ticks, const std::vector<Tick>& to) {
  Tick* __restrict a = ticks.data();
  const Tick* __restrict b = to.data();
  const std::size_t n = ticks.size();
  for (std::size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
}

bool covers(const std::vector<Tick>& a, const std::vector<Tick>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](Tick x, Tick y) { return x >= y; });
}

}  // namespace

void Clock::reset(const WorldIds& world, CtaId home, std::size_t actors) {
  world_ = world;
  home_ = home;
  own_.assign(actors, 0);
  others_.clear();
}

void Clock::join(const Clock& from) {
  if (from.empty() || from.world_ != world_) return;
  if (from.home_ == home_) {
    raise(own_, from.own_);
  } else {
    join_other(from.home_, from.own_, nullptr);
  }
  for (std::size_t i = 0; i < from.others_.size(); ++i) {
    const Shared& other = from.others_[i];
    if (!other) continue;
    const CtaId cta = world_.first + static_cast<CtaId>(i);
    if (cta == home_) {
      raise(own_, *other);
    } else {
      join_other(cta, *other, &other);
    }
  }
}

void Clock::join_other(CtaId cta, const Ticks& ticks, const Shared* shared) {
  const std::size_t i = cta - world_.first;
  if (others_.size() <= i) others_.resize(i + 1);
  Shared& mine = others_[i];
  if (shared && mine == *shared) return;
  if (mine && covers(*mine, ticks)) return;
  if (shared && (!mine || covers(ticks, *mine))) {
    mine = *shared;
    return;
  }
  auto merged = std::make_shared<Ticks>(ticks);
  if (mine) raise(*merged, *mine);
  mine = std::move(merged);
}

}  // namespace strobe::emu
