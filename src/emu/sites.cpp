#include "emu/sites.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

namespace strobe::emu {

Site Sites::number(const Here& here) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].line == here.line && std::strcmp(places_[i].file, here.file) == 0)
      return static_cast<Site>(i);
  }
  if (places_.size() < kMax) places_.push_back(here);
  return static_cast<Site>(places_.size() - 1);
}

Here Sites::place(Site site) const {
  const std::lock_guard lock(mutex_);
  return places_[site];
}

std::string Sites::name(Site site) const {
  const Here here = place(site);
  return fmt::format("{}:{}", here.file, here.line);
}

Site SiteCache::add(Entry& e, const Here& here) {
  const Site site = sites_.number(here);
  if (!e.file) ++used_;
  e = {here.file, here.line, site};
  return site;
}

}  // namespace strobe::emu
