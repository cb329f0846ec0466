// Numbers for places in kernel source, so that shadows can remember them in few bits.
#ifndef STROBE_SRC_EMU_SITES_H_
#define STROBE_SRC_EMU_SITES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "emu/report.h"

namespace strobe::emu {

using Site = std::uint16_t;

// Those of one launch, shared by its worlds.
class Sites {
 public:
  static constexpr std::size_t kMax = 1 << 14;
  Site number(const Here& here);
  Here place(Site site) const;
  std::string name(Site site) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Here> places_;
};

// One world's memory of the numbers it has asked for.
class SiteCache {
 public:
  explicit SiteCache(Sites& sites) : sites_(sites) {}
  Site number(const Here& here) {
    const auto hash = (reinterpret_cast<std::uintptr_t>(here.file) >> 4) ^
                      static_cast<std::uintptr_t>(here.line) * 31;
    for (std::size_t i = hash % kSize;; i = (i + 1) % kSize) {
      Entry& e = entries_[i];
      if (e.file == here.file && e.line == here.line) return e.site;
      if (!e.file || used_ >= kSize / 2) return add(e, here);
    }
  }

 private:
  static constexpr std::size_t kSize = 1024;
  struct Entry {
    const char* file = nullptr;
    int line = 0;
    Site site = 0;
  };
  Site add(Entry& e, const Here& here);

  Sites& sites_;
  std::array<Entry, kSize> entries_ = {};
  std::size_t used_ = 0;
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_SITES_H_
