#include "gpu/study.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu/params.h"

namespace strobe::gpu {

api::Status study_supports(const char* family, const strobe_problem& p) {
  const auto refuse = [&](const char* argument, const std::string& problem) {
    return api::unsupported(
        argument,
        fmt::format("{}: {}. Leave kernel unset for one that takes it.", argument, problem));
  };
  if (p.op != STROBE_FORWARD && p.op != STROBE_BACKWARD)
    return refuse("op",
                  fmt::format("{} computes STROBE_FORWARD and STROBE_BACKWARD alone", family));
  if (p.dtype != STROBE_BF16 && p.dtype != STROBE_F16)
    return refuse("dtype", fmt::format("{} takes bf16 and f16", family));
  for (const auto& [name, dim] :
       {std::pair{"head_dim", p.head_dim}, {"head_dim_v", p.head_dim_v}}) {
    if (dim > 128) return refuse(name, fmt::format("it is {}, {} takes up to 128", dim, family));
  }
  if (p.lengths == STROBE_VARLEN)
    return refuse("lengths",
                  fmt::format("{} takes dense and padded tensors, not packed ones", family));
  const struct {
    const char* name;
    bool given;
  } others[] = {{"softcap", p.softcap != 0},
                {"alibi", p.alibi != STROBE_ALIBI_NONE},
                {"bias", p.bias.dtype != STROBE_NONE},
                {"mask", p.mask.dtype != STROBE_NONE},
                {"sinks", p.sinks != 0}};
  for (const auto& other : others) {
    if (other.given)
      return refuse(other.name, fmt::format("{} has band, scale and dropout alone", family));
  }
  return check_sizes(p);
}

int study_bucket(const strobe_problem& p) {
  return std::max(p.head_dim, p.head_dim_v) <= 64 ? 64 : 128;
}
const char* study_dtype(const strobe_problem& p) { return p.dtype == STROBE_BF16 ? "bf16" : "f16"; }

}  // namespace strobe::gpu
