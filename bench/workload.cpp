#include "bench/workload.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"

namespace strobe::bench {
namespace {

constexpr std::uint64_t kSeed = 1;

harness::Case to_harness_case(const BenchCase& bench_case) {
  harness::Case c;
  c.name = bench_case.name();
  c.problem = bench_case.problem;
  c.seed = kSeed;
  if (bench_case.data == DataKind::growing) c.data = harness::Data::growing_maxima;
  if (bench_case.lengths.empty()) return c;
  std::int32_t end = 0;
  c.cu_seqlens_q.push_back(0);
  for (const std::int32_t length : bench_case.lengths) c.cu_seqlens_q.push_back(end += length);
  c.cu_seqlens_k = c.cu_seqlens_q;
  return c;
}

// Copies layer<i>.<name> of the fixture, float32 [1, seqlen, heads, head_dim], into batch i of a
// tensor. Returns what does not fit.
std::string copy_layers(const tools::Safetensors& fixture, const std::string& name,
                        harness::Tensor* tensor) {
  const auto& [batch, seqlen, heads, dim] = tensor->size;
  for (std::int64_t b = 0; b < batch; ++b) {
    tools::FileResult<tools::Array> layer = fixture.array(fmt::format("layer{}.{}", b, name));
    if (!layer) return layer.error().message();
    if (layer->element != tools::Element::f32 ||
        layer->shape != std::vector<std::int64_t>{1, seqlen, heads, dim}) {
      return fmt::format(
          "layer{}.{} of the fixture is {}, the case asks for float32 [1, {}, {}, {}]", b, name,
          tools::shape_text(layer->shape), seqlen, heads, dim);
    }
    const float* value = layer->as<float>();
    for (std::int64_t s = 0; s < seqlen; ++s) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t d = 0; d < dim; ++d) tensor->set({b, s, h, d}, *value++);
      }
    }
  }
  return "";
}

std::string copy_fixture(const std::string& path, harness::Inputs* inputs) {
  tools::FileResult<tools::Safetensors> fixture = tools::Safetensors::read(path);
  if (!fixture) return fixture.error().message();
  for (const auto& [name, tensor] :
       {std::pair("q", &inputs->q), std::pair("k", &inputs->k), std::pair("v", &inputs->v)}) {
    if (std::string fault = copy_layers(*fixture, name, tensor); !fault.empty()) return fault;
  }
  return "";
}

std::string text_of(const Status& status) {
  return status.argument().empty() ? status.message() : status.argument() + ": " + status.message();
}

// Runs forward and moves its o and lse into the inputs of backward, with a random dout.
std::string add_backward_inputs(const harness::Case& forward_case, const PlanOptions& options,
                                harness::Inputs* inputs) {
  const Result<Plan> plan = make_plan(forward_case.problem, options);
  if (!plan) return text_of(plan.status());
  harness::Outputs outputs = harness::make_outputs(forward_case);
  if (Status status = harness::run(*plan, forward_case, *inputs, &outputs); !status.ok())
    return text_of(status);
  inputs->o = std::move(outputs.o);
  inputs->lse = std::move(outputs.lse);
  harness::Case other = forward_case;  // dout has the shape of q, as head_dim_v == head_dim here
  other.data = harness::Data::normal;
  other.seed = kSeed + 1;
  Result<harness::Inputs> random = harness::make_inputs(other);
  if (!random) return text_of(random.status());
  inputs->dout = std::move(random->q);
  return "";
}

// The first string under `key` anywhere in a JSON value.
std::string find_string(const nlohmann::json& value, const char* key) {
  if (!value.is_structured()) return "";
  if (value.is_object() && value.contains(key) && value[key].is_string())
    return value[key].get<std::string>();
  for (const auto& item : value) {
    if (std::string found = find_string(item, key); !found.empty()) return found;
  }
  return "";
}

}  // namespace

std::variant<std::unique_ptr<Workload>, std::string> Workload::make(const BenchCase& bench_case,
                                                                    const PlanOptions& options,
                                                                    const std::string& fixture) {
  std::unique_ptr<Workload> workload(new Workload);
  if (std::string fault = workload->prepare(bench_case, options, fixture); !fault.empty())
    return fault;
  return workload;
}

std::string Workload::prepare(const BenchCase& bench_case, const PlanOptions& options,
                              const std::string& fixture) {
  case_ = to_harness_case(bench_case);
  Result<Plan> plan = make_plan(case_.problem, options);
  if (!plan) return text_of(plan.status());
  plan_ = std::make_unique<Plan>(*plan);

  // Inputs of forward first: for backward the harness would ask the float64 reference, which takes
  // minutes at these sizes.
  harness::Case forward_case = case_;
  forward_case.problem.op = Op::forward;
  Result<harness::Inputs> inputs = harness::make_inputs(forward_case);
  if (!inputs) return text_of(inputs.status());
  inputs_ = std::move(*inputs);
  if (bench_case.data == DataKind::real) {
    if (std::string fault = copy_fixture(fixture, &inputs_); !fault.empty()) return fault;
  }
  if (case_.problem.op == Op::backward) {
    if (std::string fault = add_backward_inputs(forward_case, options, &inputs_); !fault.empty())
      return fault;
  }
  outputs_ = harness::make_outputs(case_);
  args_ = std::make_unique<harness::Args>(case_, inputs_, &outputs_);
  workspace_ = std::make_unique<HostWorkspace>(*plan_);
  args_->workspace = *workspace_;
  const Status status = run();
  return status.ok() ? "" : text_of(status);
}

std::string target_of(const Plan& plan) {
  const auto explanation =
      nlohmann::json::parse(plan.explain(STROBE_JSON), nullptr, /*allow_exceptions=*/false);
  return find_string(explanation, "target");
}

}  // namespace strobe::bench
