// The numbers of a case.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/shapes.h"

namespace strobe::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Values of q, k and v. A "push" of x on key j adds about x to scale * q.k for every query: q then
// has mean 1 in every channel and k has the mean x / (scale * d).
class Filler {
 public:
  Filler(const Case& c, Rng& rng) : c_(c), dims_(c.problem), rng_(rng) {}

  double q(std::int64_t d) {
    switch (c_.data) {
      case Data::x3:
        return 3 * rng_.normal();
      case Data::very_negative:
        return 1 + 0.03 * rng_.normal();
      case Data::one_huge_key:
      case Data::growing_maxima:
        return 1 + 0.2 * rng_.normal();
      case Data::real_like:
        return rng_.normal() * (outlier(d) ? 10 : 1) + 0.5;
      default:
        return rng_.normal();
    }
  }

  // huge: the key of this head that one_huge_key makes huge; shared: its vector for equal_logits.
  double k(std::int64_t j, std::int64_t len_k, std::int64_t d, std::int64_t huge, double shared) {
    switch (c_.data) {
      case Data::x3:
        return 3 * rng_.normal();
      case Data::large_mean:
        return 10 + rng_.normal();
      case Data::equal_logits:
        return shared;
      case Data::very_negative:
        return push(-120) * (1 + 0.03 * rng_.normal());
      case Data::one_huge_key:
        return j == huge ? push(45) : 0.3 * rng_.normal();
      case Data::growing_maxima:
        return push(-30 + 60.0 * static_cast<double>(j) / static_cast<double>(len_k));
      case Data::real_like:
        return rng_.normal() * (outlier(d) ? 3 : 1) + (j == 0 ? push(8) : 0);
      default:
        return rng_.normal();
    }
  }

  double v(std::int64_t j, std::int64_t kv_head, std::int64_t d) {
    switch (c_.data) {
      case Data::x3:
        return 3 * rng_.normal();
      case Data::large_mean:
        return 10 + rng_.normal();
      case Data::one_hot_v:
        return j % dims_.dv == d ? 1 : 0;
      case Data::v_head_index:
        return 1 + static_cast<double>(kv_head);
      case Data::v_ones:
        return 1;
      default:
        return rng_.normal();
    }
  }

 private:
  static bool outlier(std::int64_t d) { return d % 29 == 3; }
  double push(double x) const { return x / (dims_.scale * static_cast<double>(dims_.d)); }

  const Case& c_;
  const Dims dims_;
  Rng& rng_;
};

void fill_qkv(const Case& c, Rng& rng, Inputs& in) {
  const Dims dims(c.problem);
  Filler filler(c, rng);
  for (const Sequence& seq : sequences(c)) {
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      for (std::int64_t i = 0; i < seq.len_q; ++i) {
        for (std::int64_t d = 0; d < dims.d; ++d) {
          in.q.set({seq.batch, seq.q_begin + i, h, d}, filler.q(d));
        }
      }
    }
    for (std::int64_t h = 0; h < dims.kv_heads; ++h) {
      const std::int64_t huge = rng.between(0, std::max<std::int64_t>(seq.len_k - 1, 0));
      std::vector<double> shared(static_cast<std::size_t>(dims.d));
      for (double& x : shared) x = rng.normal();
      for (std::int64_t j = 0; j < seq.len_k; ++j) {
        const std::int64_t row = seq.k_begin + j;
        for (std::int64_t d = 0; d < dims.d; ++d) {
          in.k.set({seq.batch, row, h, d}, filler.k(j, seq.len_k, d, huge, shared[d]));
        }
        for (std::int64_t d = 0; d < dims.dv; ++d) {
          in.v.set({seq.batch, row, h, d}, filler.v(j, h, d));
        }
      }
    }
  }
}

// N(0, 1) in the rows of every sequence of [batch, rows, heads, dim], or lse-like [batch, heads,
// rows, 1].
void fill_gradient(const Case& c, bool lse_like, Rng& rng, Tensor& t) {
  for (const Sequence& seq : sequences(c)) {
    for (std::int64_t h = 0; h < c.problem.heads; ++h) {
      for (std::int64_t row = seq.q_begin; row < seq.q_begin + seq.len_q; ++row) {
        for (std::int64_t d = 0; d < t.size[3]; ++d) {
          t.set(lse_like ? Index{seq.batch, h, row, d} : Index{seq.batch, row, h, d}, rng.normal());
        }
      }
    }
  }
}

void fill_bias(const Case& c, Rng& rng, Tensor& bias) {
  const double lowest = bias.dtype == DType::f16    ? -65504
                        : bias.dtype == DType::bf16 ? -std::ldexp(255, 120)
                                                    : -std::numeric_limits<float>::max();
  for_each(bias.size, [&](const Index& at) {
    const double draw = rng.uniform();
    bias.set(at, draw < c.bias_inf_share                         ? -kInfinity
                 : draw < c.bias_inf_share + c.bias_lowest_share ? lowest
                                                                 : rng.normal());
  });
}

// Parts over disjoint keys: one row in ten is empty in each part, and its O is poison, for it must
// be skipped.
void fill_partials(const Case& c, Rng& rng, Inputs& in) {
  const Dims dims(c.problem);
  const DType dtype =
      c.problem.partial_dtype == DType::none ? c.problem.dtype : c.problem.partial_dtype;
  for (int n = 0; n < c.problem.partials; ++n) {
    Tensor o = make_tensor(c, dtype, c.problem.o_strides, dims.rows_q, dims.heads, dims.dv);
    Tensor lse = make_lse(c, c.problem.lse_strides);
    for_each(lse.size, [&](const Index& at) {
      const bool empty = c.empty_partials[static_cast<std::size_t>(n)] || rng.chance(0.1);
      lse.set(at, empty ? -kInfinity : 3 * rng.normal());
      for (std::int64_t d = 0; d < dims.dv && !empty; ++d) {
        o.set({at[0], at[2], at[1], d}, rng.normal());
      }
    });
    in.partial_o.push_back(std::move(o));
    in.partial_lse.push_back(std::move(lse));
  }
}

// o and lse of the reference, rounded to their dtypes.
Status fill_forward(const Case& c, Inputs& in) {
  const Dims dims(c.problem);
  Case forward = as_f64(c);
  forward.problem.op = Op::forward;
  forward.problem.num_rows = 0;
  forward.lse = true;
  const Inputs in64 = as_f64(c, in);
  const Result<Plan> plan = make_plan(forward.problem, {.kernel = "reference"});
  if (!plan) return plan.status();
  Outputs out = make_outputs(forward);
  const Status status = run(*plan, forward, in64, &out);
  if (!status) return status;

  in.lse = make_lse(c, c.problem.lse_strides);
  for_each(in.lse.size, [&](const Index& at) { in.lse.set(at, out.lse.get(at)); });
  if (c.problem.op == Op::backward) {
    in.o = make_tensor(c, dims.dtype, c.problem.o_strides, dims.rows_q, dims.heads, dims.dv);
    for_each(in.o.size, [&](const Index& at) { in.o.set(at, out.o.get(at)); });
  }
  return {};
}

}  // namespace

const char* name_of(Data data) {
  constexpr const char* kNames[kDataKinds] = {
      "normal",        "x3",           "large_mean",     "equal_logits",
      "very_negative", "one_huge_key", "growing_maxima", "one_hot_v",
      "v_head_index",  "v_ones",       "real_like"};
  return kNames[static_cast<int>(data)];
}

Result<Inputs> make_inputs(const Case& c) {
  const Problem& p = c.problem;
  const Dims dims(p);
  Rng rng(c.seed);
  Inputs in;
  if (p.op == Op::keep_mask) return in;
  if (p.op == Op::merge) {
    fill_partials(c, rng, in);
    return in;
  }
  in.q = make_tensor(c, dims.dtype, p.q_strides, dims.rows_q, dims.heads, dims.d);
  in.k = make_tensor(c, dims.dtype, p.k_strides, dims.rows_k, dims.kv_heads, dims.d);
  in.v = make_tensor(c, dims.dtype, p.v_strides, dims.rows_k, dims.kv_heads, dims.dv);
  fill_qkv(c, rng, in);
  if (p.bias.dtype != DType::none) {
    in.bias = make_score_tensor(c, p.bias);
    fill_bias(c, rng, in.bias);
  }
  if (p.bool_mask.dtype != DType::none) {
    in.mask = make_score_tensor(c, p.bool_mask);
    for_each(in.mask.size, [&](const Index& at) {
      const auto any_true = static_cast<double>(rng.between(1, 255));
      in.mask.set(at, rng.chance(c.mask_visible_share) ? any_true : 0);
    });
  }
  if (p.alibi != Alibi::none) {
    in.alibi_slopes =
        Tensor(dims.aux, {1, 1, p.alibi == Alibi::per_head ? 1 : p.batch, dims.heads});
    for_each(in.alibi_slopes.size,
             [&](const Index& at) { in.alibi_slopes.set(at, std::exp2(-8 * rng.uniform())); });
  }
  if (p.sinks) {
    in.sinks = Tensor(dims.aux, {1, 1, 1, dims.heads});
    for_each(in.sinks.size, [&](const Index& at) { in.sinks.set(at, 2 * rng.normal()); });
  }
  if (p.op == Op::backward) {
    in.dout = make_tensor(c, dims.dtype, p.dout_strides, dims.rows_q, dims.heads, dims.dv);
    fill_gradient(c, false, rng, in.dout);
    if (c.dlse) {
      in.dlse = make_lse(c, p.dlse_strides);
      fill_gradient(c, true, rng, in.dlse);
    }
  }
  if (p.op == Op::backward || p.op == Op::probs) {
    const Status status = fill_forward(c, in);
    if (!status) return status;
  }
  return in;
}

}  // namespace strobe::harness
