// The reference's backward pass against central differences of its forward pass, in float64, of the
// loss sum(dO * O) + sum(dLSE * LSE).
#include <cmath>
#include <cstdint>
#include <functional>

#include "reference_run.h"

namespace strobe::harness {
namespace {

struct Feature {
  const char* name;
  std::function<void(Case&)> apply;
};

// So that a failing test prints its name, not its bytes.
void PrintTo(const Feature& feature, std::ostream* out) { *out << feature.name; }

Case base_case() {
  Case c;
  c.seed = 7;
  c.problem = {.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 4, .seqlen_k = 6, .head_dim = 3};
  c.problem.head_dim_v = 2;
  c.problem.dtype = DType::f64;
  c.problem.op = Op::backward;
  c.dlse = true;
  return c;
}

void use_bias(Case& c, std::int64_t batch, std::int64_t heads, std::int64_t seqlen_q) {
  c.problem.bias = {.dtype = DType::f64, .batch = batch, .heads = heads, .seqlen_q = seqlen_q};
  c.dbias = true;
}

void use_varlen(Case& c) {
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 4;
  c.problem.seqlen_q = 4;
  c.problem.seqlen_k = 6;
  c.cu_seqlens_q = {0, 3, 3, 7, 8};
  c.cu_seqlens_k = {0, 5, 8, 8, 14};
  c.problem.total_q = 10;
  c.problem.total_k = 15;
}

void use_all(Case& c) {
  use_bias(c, 1, STROBE_AUTO, STROBE_AUTO);
  c.bias_inf_share = 0.1;
  c.problem.mask = Band::window(4, 2);
  c.problem.softcap = 2;
  c.problem.alibi = Alibi::per_batch_head;
  c.problem.bool_mask = {.dtype = DType::boolean};
  c.problem.sinks = c.dsinks = true;
  c.problem.dropout_p = 0.3;
  c.problem.scale = 0.8;
}

const Feature kFeatures[] = {
    {"plain", [](Case&) {}},
    {"causal", [](Case& c) { c.problem.mask = Band::causal(); }},
    {"causal_with_empty_rows",
     [](Case& c) {
       c.problem.mask = Band::causal();
       c.problem.seqlen_q = 6;
       c.problem.seqlen_k = 3;
     }},
    {"window", [](Case& c) { c.problem.mask = Band::window(1, 1); }},
    {"offset", [](Case& c) { c.problem.mask = Band{.left = 2, .right = 0, .offset = 1}; }},
    {"softcap", [](Case& c) { c.problem.softcap = 1.5; }},
    {"scale", [](Case& c) { c.problem.scale = -0.9; }},
    {"alibi_per_head", [](Case& c) { c.problem.alibi = Alibi::per_head; }},
    {"alibi_per_batch_head", [](Case& c) { c.problem.alibi = Alibi::per_batch_head; }},
    {"bias_full", [](Case& c) { use_bias(c, STROBE_AUTO, STROBE_AUTO, STROBE_AUTO); }},
    {"bias_over_batch", [](Case& c) { use_bias(c, 1, STROBE_AUTO, STROBE_AUTO); }},
    {"bias_over_heads", [](Case& c) { use_bias(c, STROBE_AUTO, 1, STROBE_AUTO); }},
    {"bias_over_queries", [](Case& c) { use_bias(c, STROBE_AUTO, STROBE_AUTO, 1); }},
    {"bias_over_all", [](Case& c) { use_bias(c, 1, 1, 1); }},
    {"bias_with_minus_infinity",
     [](Case& c) {
       use_bias(c, STROBE_AUTO, STROBE_AUTO, STROBE_AUTO);
       c.bias_inf_share = 0.4;
     }},
    {"bias_and_softcap",
     [](Case& c) {
       use_bias(c, 1, STROBE_AUTO, STROBE_AUTO);
       c.problem.softcap = 1.5;
     }},
    {"mask",
     [](Case& c) {
       c.problem.bool_mask = {.dtype = DType::boolean, .heads = 1};
       c.mask_visible_share = 0.4;
     }},
    {"sinks", [](Case& c) { c.problem.sinks = c.dsinks = true; }},
    {"sinks_on_empty_rows",
     [](Case& c) {
       c.problem.sinks = c.dsinks = true;
       c.problem.mask = Band::causal();
       c.problem.seqlen_q = 6;
       c.problem.seqlen_k = 3;
     }},
    {"dropout", [](Case& c) { c.problem.dropout_p = 0.4; }},
    {"mha", [](Case& c) { c.problem.kv_heads = 4; }},
    {"mqa", [](Case& c) { c.problem.kv_heads = 1; }},
    {"padded",
     [](Case& c) {
       c.problem.lengths = Lengths::padded;
       c.problem.mask = Band::causal();
       c.seqlens_q = {4, 2};
       c.seqlens_k = {0, 5};
     }},
    {"varlen",
     [](Case& c) {
       use_varlen(c);
       c.problem.mask = Band::causal();
     }},
    {"varlen_used",
     [](Case& c) {
       use_varlen(c);
       c.seqlens_q = {2, 0, 4, 1};
       c.seqlens_k = {5, 1, 0, 4};
     }},
    {"all", [](Case& c) { use_all(c); }},
    {"all_varlen",
     [](Case& c) {
       use_varlen(c);
       use_all(c);
     }},
};

// The loss as a function of the inputs; rows of LSE = -inf do not move.
double loss(const Case& backward, const Inputs& in) {
  Case forward = backward;
  forward.problem.op = Op::forward;
  Inputs forward_in = in;
  forward_in.o = forward_in.lse = forward_in.dout = forward_in.dlse = Tensor();
  const Outputs out = run_reference(forward, forward_in);
  double sum = 0;
  for_each_index(out.o, [&](const Index& at) {
    const double weight = in.dout.get(at);
    if (!std::isnan(weight)) sum += weight * out.o.get(at);
  });
  for_each_index(out.lse, [&](const Index& at) {
    const double weight = in.dlse.get(at), lse = out.lse.get(at);
    if (!std::isnan(weight) && std::isfinite(lse)) sum += weight * lse;
  });
  return sum;
}

// Every element of one input that holds a number; the gradient of poison must be 0.
void check_gradient(const char* name, const Case& c, Inputs& in, Tensor Inputs::*input,
                    const Tensor& gradient) {
  constexpr double kStep = 1e-5;
  Tensor& x = in.*input;
  ASSERT_EQ(x.size, gradient.size) << name;
  int checked = 0;
  for_each_index(x, [&](const Index& at) {
    const double value = x.get(at);
    if (!std::isfinite(value)) {
      EXPECT_EQ(gradient.get(at), 0) << name;
      return;
    }
    x.set(at, value + kStep);
    const double above = loss(c, in);
    x.set(at, value - kStep);
    const double below = loss(c, in);
    x.set(at, value);
    const double expected = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient.get(at), expected, 1e-8 * (1 + std::fabs(expected)))
        << name << " [" << at[0] << ", " << at[1] << ", " << at[2] << ", " << at[3] << "]";
    ++checked;
  });
  EXPECT_GT(checked, 0) << name;
}

class Gradients : public testing::TestWithParam<Feature> {};

TEST_P(Gradients, EqualCentralDifferences) {
  Case c = base_case();
  GetParam().apply(c);
  Inputs in = inputs_of(c);
  const Outputs out = run_reference(c, in);
  check_gradient("dq", c, in, &Inputs::q, out.dq);
  check_gradient("dk", c, in, &Inputs::k, out.dk);
  check_gradient("dv", c, in, &Inputs::v, out.dv);
  if (c.dbias) check_gradient("dbias", c, in, &Inputs::bias, out.dbias);
  if (c.dsinks) check_gradient("dsinks", c, in, &Inputs::sinks, out.dsinks);
}

INSTANTIATE_TEST_SUITE_P(Reference, Gradients, testing::ValuesIn(kFeatures),
                         [](const testing::TestParamInfo<Feature>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace strobe::harness
