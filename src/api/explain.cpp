// strobe_plan_explain().
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/facts.h"
#include "api/names.h"
#include "api/plan.h"
#include "api/report.h"

namespace strobe::api {
namespace {

using Json = nlohmann::ordered_json;

std::string window_text(std::int64_t keys) {
  return keys < 0 ? std::string("all") : fmt::format("{}", keys);
}

std::string score_tensor_text(const char* name, const strobe_score_tensor& t) {
  return fmt::format("{} {} [{}, {}, {}, {}]", name, dtype_name(t.dtype), t.batch, t.heads,
                     t.seqlen_q, t.seqlen_k);
}

// What the problem asks for beyond its shape.
std::vector<std::string> features(const strobe_problem& p) {
  std::vector<std::string> list;
  if (p.op != STROBE_MERGE && p.op != STROBE_KEEP_MASK) {
    list.push_back(fmt::format("scale {:.6g}", p.scale));
  }
  if (p.window_left >= 0 || p.window_right >= 0) {
    const bool causal = p.window_left < 0 && p.window_right == 0;
    list.push_back(causal ? std::string("causal")
                          : fmt::format("window left {}, right {}", window_text(p.window_left),
                                        window_text(p.window_right)));
  }
  if (p.query_offset != STROBE_AUTO && p.query_offset != 0) {
    list.push_back(fmt::format("query offset {}", p.query_offset));
  }
  if (p.softcap != 0) list.push_back(fmt::format("softcap {:.6g}", p.softcap));
  if (p.alibi == STROBE_ALIBI_PER_HEAD) list.push_back("ALiBi per head");
  if (p.alibi == STROBE_ALIBI_PER_BATCH_HEAD) list.push_back("ALiBi per batch and head");
  if (p.sinks) list.push_back("sinks");
  if (p.bias.dtype != STROBE_NONE) list.push_back(score_tensor_text("bias", p.bias));
  if (p.mask.dtype != STROBE_NONE) list.push_back(score_tensor_text("mask", p.mask));
  if (p.dropout_p > 0) list.push_back(fmt::format("dropout {:.6g}", p.dropout_p));
  if (p.op == STROBE_MERGE) {
    list.push_back(fmt::format("{} partials of {}", p.partials, dtype_name(p.partial_dtype)));
  }
  if (p.op == STROBE_PROBS || p.op == STROBE_KEEP_MASK) {
    list.push_back(fmt::format("{} rows", p.num_rows));
  }
  if (p.deterministic) list.push_back("deterministic");
  list.push_back(fmt::format("pointers aligned to {} bytes", p.alignment_bytes));
  return list;
}

std::string shape_text(const strobe_problem& p) {
  std::string text = fmt::format("batch {}, heads {}", p.batch, p.heads);
  if (p.kv_heads != p.heads) text += fmt::format(" ({} of k and v)", p.kv_heads);
  if (p.lengths == STROBE_VARLEN) {
    text += fmt::format(", rows {} x {} in all", p.total_q, p.total_k);
    text += p.seqlen_q > 0 && p.seqlen_k > 0
                ? fmt::format(", seqlen up to {} x {}", p.seqlen_q, p.seqlen_k)
                : std::string(", seqlen unknown");
  } else {
    text += fmt::format(", seqlen {} x {}", p.seqlen_q, p.seqlen_k);
  }
  text += fmt::format(", head_dim {}", p.head_dim);
  if (p.head_dim_v != p.head_dim) text += fmt::format(" ({} of v)", p.head_dim_v);
  return text + fmt::format(", {}, {}, {}", dtype_name(p.dtype), layout_name(p.layout),
                            lengths_name(p.lengths));
}

std::string duration(double nanoseconds) {
  if (nanoseconds < 1e3) return fmt::format("{:.3g} ns", nanoseconds);
  if (nanoseconds < 1e6) return fmt::format("{:.3g} us", nanoseconds / 1e3);
  if (nanoseconds < 1e9) return fmt::format("{:.3g} ms", nanoseconds / 1e6);
  return fmt::format("{:.3g} s", nanoseconds / 1e9);
}

std::string reason_text(const strobe_plan& plan, const Passed& passed) {
  if (!passed.reason.ok()) return passed.reason.message;
  return fmt::format("not chosen: cost {}, against {} of {}", duration(passed.cost),
                     duration(plan.cost), plan.backend->name);
}

// What both forms say, computed once.
struct Numbers {
  explicit Numbers(const strobe_plan& plan)
      : estimates(estimate(plan.problem)),
        workspace_bytes(static_cast<double>(plan.kernel->workspace_bytes())),
        flops_per_byte(estimates.bytes > 0 ? estimates.flops / estimates.bytes : 0),
        extra_bytes(workspace_bytes + estimates.lse_bytes),
        standard_ratio(extra_bytes > 0 ? estimates.standard_bytes / extra_bytes : 0) {}

  Estimates estimates;
  double workspace_bytes;
  double flops_per_byte;
  double extra_bytes;     // beyond inputs and outputs: workspace and LSE
  double standard_ratio;  // standard attention's extra memory over ours; 0: no such comparison
};

std::string text_of(const strobe_plan& plan) {
  const strobe_problem& p = plan.problem;
  const Numbers n(plan);
  std::string text;
  const auto out = std::back_inserter(text);
  const auto row = [&](const char* name, const std::string& value) {
    fmt::format_to(out, "{:<10}{}\n", name, value);
  };
  row("problem", fmt::format("{}: {}", op_name(p.op), shape_text(p)));
  row("", fmt::format("{}", fmt::join(features(p), ", ")));
  row("plan", fmt::format("{} on {}, {} threads, estimated {}. {}", plan.backend->name,
                          device_name(plan.backend->device), plan.kernel->threads(),
                          duration(plan.cost), plan.backend->note));
  for (const auto& [name, value] : plan.kernel->facts()) {
    row("", fmt::format("{}: {}", name, value));
  }
  row("work", fmt::format("{:.4g} FLOPs over {:.6g} visible (query, key) pairs", n.estimates.flops,
                          n.estimates.visible_pairs));
  row("traffic", fmt::format("at least {}: {:.4g} FLOPs per byte", human_bytes(n.estimates.bytes),
                             n.flops_per_byte));
  row("memory", fmt::format("{} workspace and {} LSE", human_bytes(n.workspace_bytes),
                            human_bytes(n.estimates.lse_bytes)));
  if (n.standard_ratio > 0) {
    row("", fmt::format("standard attention stores {} for S and P: {:.4g} times as much",
                        human_bytes(n.estimates.standard_bytes), n.standard_ratio));
  }
  const char* label = "others";
  for (const Passed& passed : plan.passed) {
    row(label, fmt::format("{}: {}", passed.name, reason_text(plan, passed)));
    label = "";
  }
  return text;
}

Json problem_json(const strobe_problem& p) {
  return {{"op", op_name(p.op)},
          {"batch", p.batch},
          {"heads", p.heads},
          {"kv_heads", p.kv_heads},
          {"seqlen_q", p.seqlen_q},
          {"seqlen_k", p.seqlen_k},
          {"total_q", p.total_q},
          {"total_k", p.total_k},
          {"head_dim", p.head_dim},
          {"head_dim_v", p.head_dim_v},
          {"dtype", dtype_name(p.dtype)},
          {"layout", layout_name(p.layout)},
          {"lengths", lengths_name(p.lengths)},
          {"features", features(p)}};
}

Json json_of(const strobe_plan& plan) {
  const Numbers n(plan);
  Json facts = Json::object();
  for (const auto& [name, value] : plan.kernel->facts()) facts[name] = value;
  Json others = Json::array();
  for (const Passed& passed : plan.passed) {
    others.push_back({{"backend", passed.name},
                      {"supported", passed.reason.ok()},
                      {"reason", reason_text(plan, passed)}});
  }
  Json json = {{"problem", problem_json(plan.problem)},
               {"plan",
                {{"backend", plan.backend->name},
                 {"device", device_name(plan.backend->device)},
                 {"note", plan.backend->note},
                 {"threads", plan.kernel->threads()},
                 {"cost_ns", plan.cost},
                 {"facts", std::move(facts)}}},
               {"visible_pairs", n.estimates.visible_pairs},
               {"flops", n.estimates.flops},
               {"bytes", n.estimates.bytes},
               {"flops_per_byte", n.flops_per_byte},
               {"workspace_bytes", n.workspace_bytes},
               {"lse_bytes", n.estimates.lse_bytes},
               {"standard_bytes", n.estimates.standard_bytes},
               {"standard_ratio", n.standard_ratio},
               {"others", std::move(others)}};
  if (const std::string last = plan.kernel->last_run(); !last.empty()) {
    json["last_run"] = Json::parse(last, nullptr, false);
  }
  return json;
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::string explain(const strobe_plan& plan, strobe_format format) {
  if (format != STROBE_JSON) return text_of(plan);
  return json_of(plan).dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace strobe::api
