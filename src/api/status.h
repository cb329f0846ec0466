// Status: the library's only way to say no. Internal twin of strobe_status, without its length
// limits.
#ifndef STROBE_SRC_API_STATUS_H_
#define STROBE_SRC_API_STATUS_H_

#include <strobe/strobe.h>

#include <string>
#include <utility>

namespace strobe::api {

struct [[nodiscard]] Status {
  strobe_code code = STROBE_OK;
  std::string argument;  // as spelled in strobe.h
  std::string message;   // its value, the limit, what to do

  bool ok() const { return code == STROBE_OK; }
};

inline Status invalid(std::string argument, std::string message) {
  return {STROBE_INVALID_ARGUMENT, std::move(argument), std::move(message)};
}

inline Status unsupported(std::string argument, std::string message) {
  return {STROBE_UNSUPPORTED, std::move(argument), std::move(message)};
}

}  // namespace strobe::api

#endif  // STROBE_SRC_API_STATUS_H_
