#include "api/names.h"

#include <cstddef>
#include <cstdint>

namespace strobe::api {
namespace {

template <std::size_t N>
const char* name_at(const char* const (&names)[N], std::int32_t value) {
  return value >= 0 && static_cast<std::size_t>(value) < N ? names[value] : nullptr;
}

}  // namespace

const char* dtype_name(strobe_dtype dtype) {
  static constexpr const char* kNames[] = {"STROBE_NONE",   "STROBE_F32", "STROBE_BF16",
                                           "STROBE_F16",    "STROBE_F64", "STROBE_F8E4M3",
                                           "STROBE_F8E5M2", "STROBE_BOOL"};
  return name_at(kNames, dtype);
}

const char* op_name(strobe_op op) {
  static constexpr const char* kNames[] = {"STROBE_FORWARD", "STROBE_BACKWARD", "STROBE_MERGE",
                                           "STROBE_PROBS", "STROBE_KEEP_MASK"};
  return name_at(kNames, op);
}

const char* layout_name(strobe_layout layout) {
  static constexpr const char* kNames[] = {"STROBE_BSHD", "STROBE_BHSD"};
  return name_at(kNames, layout);
}

const char* lengths_name(strobe_lengths lengths) {
  static constexpr const char* kNames[] = {"STROBE_DENSE", "STROBE_PADDED", "STROBE_VARLEN"};
  return name_at(kNames, lengths);
}

const char* alibi_name(strobe_alibi alibi) {
  static constexpr const char* kNames[] = {"STROBE_ALIBI_NONE", "STROBE_ALIBI_PER_HEAD",
                                           "STROBE_ALIBI_PER_BATCH_HEAD"};
  return name_at(kNames, alibi);
}

const char* device_name(strobe_device_kind device) {
  static constexpr const char* kNames[] = {"cpu", "cuda", "emulator"};
  return name_at(kNames, device);
}

}  // namespace strobe::api
