// Reports for people and programs: the same content as one page of text or as JSON.
#ifndef STROBE_SRC_API_REPORT_H_
#define STROBE_SRC_API_REPORT_H_

#include <strobe/strobe.h>

#include <string>

#include "api/plan.h"

namespace strobe::api {

std::string explain(const strobe_plan& plan, strobe_format format);
std::string library_info(strobe_format format);

// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

}  // namespace strobe::api

#endif  // STROBE_SRC_API_REPORT_H_
