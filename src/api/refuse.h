// How Strobe says no to a caller: one sentence form, "X is VALUE, but LIMIT. REMEDY.", and the rule
// of struct_size. Private to src/api; backends write their own refusals.
#ifndef STROBE_SRC_API_REFUSE_H_
#define STROBE_SRC_API_REFUSE_H_

#include <fmt/format.h>
#include <strobe/strobe.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "api/status.h"

namespace strobe::api {

// Stops a chain of checks at the first refusal.
#define STROBE_RETURN_IF_REFUSED(expression)                                            \
  do {                                                                                  \
    if (::strobe::api::Status refused_ = (expression); !refused_.ok()) return refused_; \
  } while (false)

// A value for a message; STROBE_AUTO by its name, since its digits would puzzle.
inline std::string shown(std::int64_t value) {
  return value == STROBE_AUTO ? "STROBE_AUTO" : fmt::format("{}", value);
}
inline std::string shown(double value) { return fmt::format("{}", value); }
inline std::string shown(std::string value) { return value; }
// An enum value: its name, or its number where it has none.
inline std::string shown_enum(const char* name, std::int32_t value) {
  return name ? name : fmt::format("{}", value);
}

template <class Value>
Status refuse(std::string_view argument, const Value& value, std::string_view limit,
              std::string_view remedy) {
  return invalid(std::string(argument),
                 fmt::format("{} is {}, but {}. {}.", argument, shown(value), limit, remedy));
}

// One element of an array argument is at fault.
inline Status refuse_element(std::string_view argument, std::int64_t index, std::int64_t value,
                             std::string_view limit, std::string_view remedy) {
  return invalid(std::string(argument),
                 fmt::format("{}[{}] is {}, but {}. {}.", argument, index, value, limit, remedy));
}

// Copies text and a final 0 into `size` bytes; what does not fit is cut between characters (UTF-8)
// and marked by "...".
inline void copy_cut(std::string_view text, char* to, std::size_t size) {
  constexpr std::string_view kMark = "...";
  std::size_t keep = text.size();
  std::string_view mark;
  if (keep >= size) {
    mark = kMark;
    keep = size - 1 - kMark.size();
    while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0) == 0x80) --keep;
  }
  *std::copy(mark.begin(), mark.end(), std::copy_n(text.begin(), keep, to)) = '\0';
}

// Copies a caller's struct over `copy`, which holds the defaults: a shorter struct_size (a caller
// built with an older header) leaves the rest at them, a longer one is refused, for it may hold
// fields that this library would ignore. Every version of a struct has a size that is a multiple of
// its alignment, so no field is ever copied in half.
template <class T>
Status copy_struct(std::string_view argument, const char* type, const T* user, T* copy) {
  if (user == nullptr) {
    return refuse(argument, "NULL", fmt::format("a {} is needed", type),
                  fmt::format("Pass a {} filled in with {}_init", type, type));
  }
  std::uint32_t size = 0;
  std::memcpy(&size, user, sizeof(size));
  if (size > sizeof(T)) {
    return refuse(
        "struct_size", std::int64_t{size},
        fmt::format("this library's {} has {} bytes", type, sizeof(T)),
        fmt::format("Call {}_init, and use a libstrobe as new as the header, not {}.{}.{}", type,
                    STROBE_VERSION_MAJOR, STROBE_VERSION_MINOR, STROBE_VERSION_PATCH));
  }
  if (size < alignof(T) || size % alignof(T) != 0) {
    return refuse("struct_size", std::int64_t{size},
                  fmt::format("no {} has that size; it is a multiple of {} from {} to {}", type,
                              alignof(T), alignof(T), sizeof(T)),
                  fmt::format("Call {}_init, or set it to sizeof({})", type, type));
  }
  std::memcpy(static_cast<void*>(copy), user, size);
  copy->struct_size = sizeof(T);
  return {};
}

}  // namespace strobe::api

#endif  // STROBE_SRC_API_REFUSE_H_
