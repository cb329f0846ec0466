// Names of the enum values of strobe.h, as its users spell them, for messages and reports.
#ifndef STROBE_SRC_API_NAMES_H_
#define STROBE_SRC_API_NAMES_H_

#include <strobe/strobe.h>

namespace strobe::api {

// nullptr where the value is not one of the enum's.
const char* dtype_name(strobe_dtype dtype);          // "STROBE_BF16"
const char* op_name(strobe_op op);                   // "STROBE_FORWARD"
const char* layout_name(strobe_layout layout);       // "STROBE_BSHD"
const char* lengths_name(strobe_lengths lengths);    // "STROBE_VARLEN"
const char* alibi_name(strobe_alibi alibi);          // "STROBE_ALIBI_PER_HEAD"
const char* device_name(strobe_device_kind device);  // "cpu"

}  // namespace strobe::api

#endif  // STROBE_SRC_API_NAMES_H_
