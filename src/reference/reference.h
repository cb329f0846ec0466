// The float64 reference as a backend row, "reference": every operation, dtype and feature of
// strobe.h, in plain loops. It is the oracle of all other backends and shares no code with them.
#ifndef STROBE_SRC_REFERENCE_REFERENCE_H_
#define STROBE_SRC_REFERENCE_REFERENCE_H_

#include "api/backend.h"

namespace strobe::reference {

extern const api::Backend kBackend;

}  // namespace strobe::reference

#endif  // STROBE_SRC_REFERENCE_REFERENCE_H_
