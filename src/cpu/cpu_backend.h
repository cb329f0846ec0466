// The CPU backend as a row of the registry, "cpu".
#ifndef STROBE_SRC_CPU_CPU_BACKEND_H_
#define STROBE_SRC_CPU_CPU_BACKEND_H_

#include "api/backend.h"

namespace strobe::cpu {

extern const api::Backend kBackend;

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_CPU_BACKEND_H_
