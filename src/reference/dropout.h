// The dropout rule of docs/numerics.md, written on its own so that it can check src/core/philox.h.
#ifndef STROBE_SRC_REFERENCE_DROPOUT_H_
#define STROBE_SRC_REFERENCE_DROPOUT_H_

#include <strobe/strobe.h>

#include <array>
#include <cstdint>

namespace strobe::reference {

// Philox4x32 (Salmon et al., SC 2011) with any number of rounds.
std::array<std::uint32_t, 4> philox4x32(int rounds, std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// Which elements of P dropout keeps in one (sequence, query head).
class Dropout {
 public:
  Dropout(const strobe_problem& problem, const strobe_run_args& args, std::int64_t sequence,
          std::int64_t head);

  bool kept(std::int64_t i, std::int64_t j) const;
  // Z of docs/numerics.md: what P is multiplied by.
  double factor(std::int64_t i, std::int64_t j) const;

 private:
  double p_;
  std::array<std::uint32_t, 4> stream_;
};

}  // namespace strobe::reference

#endif  // STROBE_SRC_REFERENCE_DROPOUT_H_
