// The exported functions: each checks its pointers, calls the inside and turns Status and any
// exception into a strobe_status. Nothing is thrown past here.
#include <strobe/strobe.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "api/backend.h"
#include "api/facts.h"
#include "api/plan.h"
#include "api/refuse.h"
#include "api/report.h"
#include "api/support.h"

#define STROBE_TEXT_OF(x) #x
#define STROBE_VERSION_TEXT(major, minor, patch) \
  STROBE_TEXT_OF(major) "." STROBE_TEXT_OF(minor) "." STROBE_TEXT_OF(patch)

namespace {

namespace api = strobe::api;
using api::Status;

strobe_code report(strobe_status* status, strobe_code code, std::string_view argument,
                   std::string_view message) {
  if (status != nullptr) {
    status->code = code;
    api::copy_cut(argument, status->argument, sizeof(status->argument));
    api::copy_cut(message, status->message, sizeof(status->message));
  }
  return code;
}

// Runs f() -> Status and reports it.
template <class F>
strobe_code guarded(strobe_status* status, F f) noexcept {
  try {
    const Status result = f();
    return report(status, result.code, result.argument, result.message);
  } catch (const std::bad_alloc&) {
    return report(status, STROBE_OUT_OF_MEMORY, "",
                  "The host is out of memory. Free some, or make the problem smaller.");
  } catch (const std::exception& e) {
    report(status, STROBE_INTERNAL, "", e.what());
    return STROBE_INTERNAL;
  } catch (...) {
    return report(status, STROBE_INTERNAL, "",
                  "Strobe met an unknown exception. This is a defect: please report it.");
  }
}

// Copies text into a caller's buffer, cut to fit, and returns the size of all of it. Where it
// cannot be made, the text is empty.
template <class F>
std::size_t write_text(char* buffer, std::size_t capacity, F make) noexcept {
  if (buffer == nullptr) capacity = 0;
  if (capacity > 0) buffer[0] = '\0';
  try {
    const std::string text = make();
    if (capacity > 0) {
      const std::size_t count = std::min(text.size(), capacity - 1);
      std::memcpy(buffer, text.data(), count);
      buffer[count] = '\0';
    }
    return text.size() + 1;
  } catch (...) {
    return 1;
  }
}

Status null_argument(const char* name, const char* remedy) {
  return api::refuse(name, std::string("NULL"), "the function needs it", remedy);
}

// Writes as much of the facts as the caller's struct holds.
Status get_facts(const strobe_plan* plan, strobe_plan_facts* facts) {
  if (plan == nullptr) return null_argument("plan", "Pass a plan of strobe_plan_create()");
  strobe_plan_facts full{};
  STROBE_RETURN_IF_REFUSED(api::copy_struct("facts", "strobe_plan_facts", facts, &full));
  const std::uint32_t size = facts->struct_size;
  const api::Estimates e = api::estimate(plan->problem);
  full.struct_size = size;
  full.threads = plan->kernel->threads();
  full.visible_pairs = e.visible_pairs;
  full.flops = e.flops;
  full.bytes = e.bytes;
  full.workspace_bytes = static_cast<double>(plan->kernel->workspace_bytes());
  full.standard_bytes = e.standard_bytes;
  std::memcpy(static_cast<void*>(facts), &full, size);
  return {};
}

}  // namespace

void strobe_problem_init(strobe_problem* problem) {
  if (problem == nullptr) return;
  constexpr strobe_strides kStrides = {STROBE_AUTO, STROBE_AUTO, STROBE_AUTO};
  constexpr strobe_score_tensor kAbsent = {STROBE_NONE, 0,           STROBE_AUTO,
                                           STROBE_AUTO, STROBE_AUTO, STROBE_AUTO,
                                           STROBE_AUTO, STROBE_AUTO, STROBE_AUTO};
  strobe_problem p{};
  p.struct_size = sizeof(p);
  p.op = STROBE_FORWARD;
  p.dtype = STROBE_F32;
  p.layout = STROBE_BSHD;
  p.batch = 1;
  p.heads = 1;
  p.kv_heads = STROBE_AUTO;
  p.head_dim_v = STROBE_AUTO;
  p.lengths = STROBE_DENSE;
  p.scale = STROBE_SCALE_AUTO;
  p.window_left = -1;
  p.window_right = -1;
  p.query_offset = STROBE_AUTO;
  p.bias = kAbsent;
  p.mask = kAbsent;
  for (strobe_strides* strides :
       {&p.q_strides, &p.k_strides, &p.v_strides, &p.o_strides, &p.lse_strides, &p.dout_strides,
        &p.dlse_strides, &p.dq_strides, &p.dk_strides, &p.dv_strides}) {
    *strides = kStrides;
  }
  p.alignment_bytes = 16;
  *problem = p;
}

void strobe_plan_options_init(strobe_plan_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof(*options);
}

void strobe_run_args_init(strobe_run_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof(*args);
}

strobe_code strobe_problem_check(const strobe_problem* problem, strobe_status* status) {
  return guarded(status, [&] {
    strobe_problem resolved;
    return api::resolve(problem, &resolved);
  });
}

strobe_code strobe_plan_create(const strobe_problem* problem, const strobe_plan_options* options,
                               strobe_plan** plan, strobe_status* status) {
  if (plan != nullptr) *plan = nullptr;
  return guarded(status, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan", "Pass the address of a strobe_plan*");
    std::unique_ptr<strobe_plan> made;
    STROBE_RETURN_IF_REFUSED(api::make_plan(problem, options, api::backends(), &made));
    *plan = made.release();
    return {};
  });
}

void strobe_plan_destroy(strobe_plan* plan) { delete plan; }

std::size_t strobe_plan_workspace_bytes(const strobe_plan* plan) {
  return plan == nullptr ? 0 : plan->kernel->workspace_bytes();
}

strobe_code strobe_plan_get_facts(const strobe_plan* plan, strobe_plan_facts* facts,
                                  strobe_status* status) {
  return guarded(status, [&] { return get_facts(plan, facts); });
}

std::size_t strobe_plan_explain(const strobe_plan* plan, strobe_format format, char* buffer,
                                std::size_t capacity) {
  return write_text(buffer, capacity,
                    [&] { return plan == nullptr ? std::string() : api::explain(*plan, format); });
}

strobe_code strobe_plan_run(const strobe_plan* plan, const strobe_run_args* args, void* stream,
                            strobe_status* status) {
  return guarded(status, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan", "Pass a plan of strobe_plan_create()");
    strobe_run_args checked;
    STROBE_RETURN_IF_REFUSED(api::check_args(plan->problem, plan->kernel->workspace_bytes(), args,
                                             stream, plan->options.device, &checked));
    return plan->kernel->run(checked, stream);
  });
}

const char* strobe_version(void) {
  return STROBE_VERSION_TEXT(STROBE_VERSION_MAJOR, STROBE_VERSION_MINOR, STROBE_VERSION_PATCH);
}

std::size_t strobe_library_info(strobe_format format, char* buffer, std::size_t capacity) {
  return write_text(buffer, capacity, [&] { return api::library_info(format); });
}

std::size_t strobe_dtype_bytes(strobe_dtype dtype) {
  switch (dtype) {
    case STROBE_F64:
      return 8;
    case STROBE_F32:
      return 4;
    case STROBE_BF16:
    case STROBE_F16:
      return 2;
    case STROBE_F8E4M3:
    case STROBE_F8E5M2:
    case STROBE_BOOL:
      return 1;
    default:
      return 0;
  }
}
