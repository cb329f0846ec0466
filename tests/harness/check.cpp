// Comparison of a plan's outputs with the float64 reference.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "harness/shapes.h"

namespace strobe::harness {
namespace {

std::string printf_string(const char* format, auto... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

// Sums of a thousand float32 subnormals, each of which may count as 0.
constexpr double kUnderflow = 0x1p-116;

// One output, compared element by element.
class Comparison {
 public:
  Comparison(const char* name, const Tensor& got, const Tensor& ref, const Tensor& naive,
             const Tensor& exact, const Tensor& magnitude)
      : got_(got), ref_(ref), naive_(naive), exact_(exact), magnitude_(magnitude) {
    row_.tensor = name;
  }

  CheckRow row() {
    for_each(got_.size, [&](const Index& at) { look_at(at); });
    const double eps = epsilon(got_.dtype);
    const double eps_sum = epsilon(got_.dtype == DType::f64 ? DType::f64 : DType::f32);
    row_.plain_bound = 2 * row_.naive_error + 4 * eps * row_.max_ref;
    row_.bound = row_.plain_bound + eps_sum * max_magnitude_ + kUnderflow;
    if (row_.ok && !(row_.error <= row_.bound)) fail(row_.worst, "error above its bound");
    if (got_.elements() > 0) {
      row_.value = got_.get(row_.worst);
      row_.ref = ref_.get(row_.worst);
      row_.naive = naive_.get(row_.worst);
    }
    return row_;
  }

 private:
  void look_at(const Index& at) {
    const double value = got_.get(at), ref = ref_.get(at);
    if (must_be_exact(at)) {
      if (value != round_to(got_.dtype, ref)) fail(at, "must equal the reference exactly");
      return;
    }
    if (std::isnan(ref)) {
      if (!std::isnan(value)) fail(at, "must be NaN");
      return;
    }
    if (std::isinf(ref)) {
      if (value != ref) fail(at, "must be the same infinity");
      return;
    }
    const double error = std::fabs(value - ref);
    if (std::fabs(ref) >
        1e30) {  // from a bias of the lowest float: would drown the other elements' bound
      if (!(error <= 4 * epsilon(got_.dtype) * std::fabs(ref))) fail(at, "error above its bound");
      return;
    }
    if (!std::isfinite(value)) fail(at, "must be finite");
    if (error > row_.error) {
      row_.error = error;
      if (row_.ok) row_.worst = at;
    }
    row_.naive_error = std::max(row_.naive_error, std::fabs(naive_.get(at) - ref));
    row_.max_ref = std::max(row_.max_ref, std::fabs(ref));
    max_magnitude_ = std::max(max_magnitude_, magnitude_.get(at));
  }

  bool must_be_exact(Index at) const {
    if (exact_.size[3] == 1) at[3] = 0;
    return exact_.get(at) != 0;
  }

  void fail(const Index& at, const char* fault) {
    if (!row_.ok) return;
    row_.ok = false;
    row_.worst = at;
    row_.fault = fault;
  }

  const Tensor &got_, &ref_, &naive_, &exact_, &magnitude_;
  CheckRow row_;
  double max_magnitude_ = 0;
};

// Which elements dropout keeps, of every query row; undefined without dropout.
Result<Tensor> keep_of(const Case& c) {
  const bool needs = c.problem.op == Op::forward || c.problem.op == Op::backward;
  if (!needs || c.problem.dropout_p == 0) return Tensor();
  Case all = as_f64(c);
  Problem& p = all.problem;
  p.op = Op::keep_mask;
  p.num_rows = Dims(p).rows_q;
  if (p.lengths == Lengths::varlen) {  // the bounds may be unknown, but the mask's width needs one
    p.seqlen_q = 0;
    p.seqlen_k = 1;
    for (std::size_t b = 0; b + 1 < c.cu_seqlens_k.size(); ++b) {
      p.seqlen_k = std::max<std::int64_t>(p.seqlen_k, c.cu_seqlens_k[b + 1] - c.cu_seqlens_k[b]);
    }
  }
  for (std::int64_t row = 0; row < p.num_rows; ++row) all.rows.push_back(row);
  p.bias = p.bool_mask = ScoreTensor{};
  const Result<Plan> plan = make_plan(p, {.kernel = "reference"});
  if (!plan) return plan.status();
  Outputs out = make_outputs(all);
  const Status status = run(*plan, all, Inputs(), &out);
  if (!status) return status;
  return out.keep_mask;
}

// The reference's outputs in float64 from the same rounded inputs.
Result<Outputs> reference(const Case& c, const Inputs& inputs) {
  const Case c64 = as_f64(c);
  const Inputs in64 = as_f64(c, inputs);
  const Result<Plan> plan = make_plan(c64.problem, {.kernel = "reference"});
  if (!plan) return plan.status();
  Outputs out = make_outputs(c64);
  const Status status = run(*plan, c64, in64, &out);
  if (!status) return status;
  return out;
}

std::string text_of(const CheckRow& row) {
  std::string text = printf_string(
      "  %-9s %-4s error %.3g, bound %.3g (naive %.3g, max |ref| %.3g)", row.tensor.c_str(),
      row.ok ? "ok" : "FAIL", row.error, row.bound, row.naive_error, row.max_ref);
  if (row.ok && row.error > row.plain_bound) {
    text += printf_string("; above the plain bound %.3g", row.plain_bound);
  }
  if (row.ok) return text + "\n";
  text += ": " + row.fault;
  text += printf_string("; at [%lld, %lld, %lld, %lld] value %.9g, reference %.9g, naive %.9g\n",
                        static_cast<long long>(row.worst[0]), static_cast<long long>(row.worst[1]),
                        static_cast<long long>(row.worst[2]), static_cast<long long>(row.worst[3]),
                        row.value, row.ref, row.naive);
  return text;
}

CheckReport given_up(const Case& c, const Status& status) {
  CheckReport report;
  report.description = describe(c);
  report.outcome = status.code() == STROBE_UNSUPPORTED ? Outcome::refused : Outcome::failed;
  report.status = status;
  return report;
}

}  // namespace

std::vector<CheckRow> compare(const Outputs& got, const Outputs& ref, const Naive& naive) {
  constexpr std::pair<const char*, Tensor Outputs::*> kAll[] = {
      {"o", &Outputs::o},           {"lse", &Outputs::lse},     {"dq", &Outputs::dq},
      {"dk", &Outputs::dk},         {"dv", &Outputs::dv},       {"dbias", &Outputs::dbias},
      {"dsinks", &Outputs::dsinks}, {"probs", &Outputs::probs}, {"keep_mask", &Outputs::keep_mask}};
  std::vector<CheckRow> rows;
  for (const auto& [name, tensor] : kAll) {
    if (!(got.*tensor).defined() || !(ref.*tensor).defined()) continue;
    rows.push_back(Comparison(name, got.*tensor, ref.*tensor, naive.outputs.*tensor,
                              naive.exact.*tensor, naive.magnitude.*tensor)
                       .row());
  }
  return rows;
}

std::string CheckReport::text() const {
  std::string text = description + "\n";
  if (!status) text += "  " + status.argument() + ": " + status.message() + "\n";
  for (const CheckRow& row : rows) text += text_of(row);
  return text;
}

CheckReport check_case(const Case& c, const PlanOptions& options) {
  const Result<Plan> plan = make_plan(c.problem, options);
  if (plan) return check_case(c, *plan, options.device);
  return given_up(c, plan.status());
}

CheckReport check_case(const Case& c, const Plan& plan, Device device) {
  CheckReport report;
  report.description = describe(c);
  const auto give_up = [&](const Status& status) { return given_up(c, status); };
  const Result<Inputs> inputs = make_inputs(c);
  if (!inputs) return give_up(inputs.status());
  Outputs got = make_outputs(c);
  const Status status = run(plan, c, *inputs, &got, device);
  if (!status) return give_up(status);
  const Result<Outputs> ref = reference(c, *inputs);
  if (!ref) return give_up(ref.status());
  const Result<Tensor> keep = keep_of(c);
  if (!keep) return give_up(keep.status());

  report.rows = compare(got, *ref, naive(c, *inputs, *keep));
  const bool ok = std::all_of(report.rows.begin(), report.rows.end(),
                              [](const CheckRow& row) { return row.ok; });
  report.outcome = ok ? Outcome::passed : Outcome::failed;
  return report;
}

}  // namespace strobe::harness
