// The CPU backend as a row of the registry, "cpu".
#ifndef STROBE_SRC_CPU_CPU_BACKEND_H_
#define STROBE_SRC_CPU_CPU_BACKEND_H_

#include <string>
#include <vector>

#include "api/backend.h"

namespace strobe::cpu {

extern const api::Backend kBackend;

// SIMD targets compiled in that this CPU runs, best first.
std::vector<std::string> targets();

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_CPU_BACKEND_H_
