// The naive computation: docs/numerics.md done plainly in one precision T (float32 for f32, bf16
// and f16), with P and dS rounded to the dtype before they are multiplied.
//
// Magnitudes bound what float32 may lose: a score loses up to its x.size, so P = exp(s - lse) loses
// P * (1 + x.size + |lse|), and a sum of products loses the sum of their absolute values.
#include "harness/naive_scores.h"

namespace strobe::harness {
namespace {

template <class T>
void forward_row(const NaiveScores<T>& head, std::int64_t i, std::int64_t h, Naive& out) {
  const auto scores = head.scores(i, h);
  T m = head.sink(h);
  for (const auto& x : scores) m = std::max(m, x.s);
  if (m == head.kMinusInfinity) return;  // outputs start as those of an empty row
  T sum = std::exp(head.sink(h) - m);
  for (const auto& x : scores) sum += std::exp(x.s - m);
  const T lse = m + std::log(sum);
  double lse_size = size_of_term(lse);
  for (const auto& x : scores) lse_size += std::exp(x.s - m) / sum * x.size;

  std::vector<T> o(static_cast<std::size_t>(head.dims.dv));
  std::vector<double> o_size(o.size());
  bool sees_key = false;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (scores[j].s == head.kMinusInfinity) continue;
    sees_key = true;
    const T P =
        std::exp(scores[j].s - m) / sum * head.keep_factor(i, static_cast<std::int64_t>(j), h);
    const T P_rounded = head.rounded(P);
    const double P_size = P * (1 + scores[j].size + lse_size);
    for (std::size_t d = 0; d < o.size(); ++d) {
      o[d] += P_rounded * head.v[j][d];
      o_size[d] += P_size * std::fabs(head.v[j][d]);
    }
  }
  const std::int64_t batch = head.seq.batch, at = head.seq.q_begin + i;
  for (std::int64_t d = 0; d < head.dims.dv; ++d) {
    out.outputs.o.set({batch, at, h, d}, head.rounded(o[d]));
    out.magnitude.o.set({batch, at, h, d}, o_size[d]);
  }
  out.exact.o.set({batch, at, h, 0}, !sees_key);
  if (!out.outputs.lse.defined()) return;
  out.outputs.lse.set({batch, h, at, 0}, lse);
  out.magnitude.lse.set({batch, h, at, 0}, lse_size);
  out.exact.lse.set({batch, h, at, 0}, !sees_key);
}

// What the rows of one (sequence, KV head) add up to.
template <class T>
struct Gradients {
  std::vector<std::vector<T>> dk, dv;
  std::vector<std::vector<double>> dk_size, dv_size;
  std::vector<bool> seen;  // by any query

  explicit Gradients(const NaiveScores<T>& head)
      : dk(head.k.size(), std::vector<T>(static_cast<std::size_t>(head.dims.d))),
        dv(head.k.size(), std::vector<T>(static_cast<std::size_t>(head.dims.dv))),
        dk_size(head.k.size(), std::vector<double>(static_cast<std::size_t>(head.dims.d))),
        dv_size(head.k.size(), std::vector<double>(static_cast<std::size_t>(head.dims.dv))),
        seen(head.k.size()) {}
};

void add(Tensor& t, const Index& at, double value) { t.set(at, t.get(at) + value); }

template <class T>
void backward_row(const Inputs& in, const NaiveScores<T>& head, std::int64_t b, std::int64_t i,
                  std::int64_t h, T lse, Gradients<T>& sums, Naive& out) {
  const std::int64_t batch = head.seq.batch, at = head.seq.q_begin + i;
  const auto q = head.row(in.q, at, h), o = head.row(in.o, at, h), dO = head.row(in.dout, at, h);
  const double lse_size = size_of_term(lse);
  T D = in.dlse.defined() ? -T(in.dlse.get({batch, h, at, 0})) : T(0);
  double D_size = std::fabs(D);
  for (std::size_t d = 0; d < o.size(); ++d) {
    D += dO[d] * o[d];
    D_size += std::fabs(double(dO[d]) * o[d]);
  }
  if (out.outputs.dsinks.defined()) {
    const T P = std::exp(head.sink(h) - lse);
    add(out.outputs.dsinks, {0, 0, 0, h}, -P * D);
    add(out.magnitude.dsinks, {0, 0, 0, h},
        P * (D_size + std::fabs(D) * (1 + std::fabs(head.sink(h)) + lse_size)));
  }

  std::vector<T> dq(q.size());
  std::vector<double> dq_size(q.size());
  const auto scores = head.scores(i, h);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (scores[j].s == head.kMinusInfinity) continue;
    const T P = std::exp(scores[j].s - lse);
    const T Z = head.keep_factor(i, static_cast<std::int64_t>(j), h);
    T dP = 0;
    double dP_size = 0;
    for (std::size_t d = 0; d < dO.size(); ++d) {
      dP += dO[d] * head.v[j][d];
      dP_size += std::fabs(double(dO[d]) * head.v[j][d]);
    }
    const T dS = P * (Z * dP - D);
    const double P_size = P * (1 + scores[j].size + lse_size);
    const double dS_size = P_size * std::fabs(Z * dP - D) + P * (Z * dP_size + D_size);
    if (out.outputs.dbias.defined()) {
      const Index at_bias =
          broadcast_index(out.outputs.dbias, b, h, i, static_cast<std::int64_t>(j));
      add(out.outputs.dbias, at_bias, head.rounded(dS));
      add(out.magnitude.dbias, at_bias, dS_size);
      out.exact.dbias.set(at_bias, 0);
    }
    const T dS_rounded = head.rounded(dS * scores[j].slope), ZP = head.rounded(Z * P);
    for (std::size_t d = 0; d < q.size(); ++d) {
      dq[d] += dS_rounded * head.k[j][d];
      dq_size[d] += dS_size * std::fabs(head.k[j][d]);
      sums.dk[j][d] += dS_rounded * q[d];
      sums.dk_size[j][d] += dS_size * std::fabs(q[d]);
    }
    for (std::size_t d = 0; d < dO.size(); ++d) {
      sums.dv[j][d] += ZP * dO[d];
      sums.dv_size[j][d] += Z * P_size * std::fabs(dO[d]);
    }
    sums.seen[j] = true;
    out.exact.dq.set({batch, at, h, 0}, 0);
  }
  for (std::int64_t d = 0; d < head.dims.d; ++d) {
    out.outputs.dq.set({batch, at, h, d}, head.rounded(T(head.dims.scale) * dq[d]));
    out.magnitude.dq.set({batch, at, h, d}, std::fabs(head.dims.scale) * dq_size[d]);
  }
}

// dK and dV of one (sequence, KV head).
template <class T>
void store(const NaiveScores<T>& head, const Gradients<T>& sums, Naive& out) {
  for (std::size_t j = 0; j < head.k.size(); ++j) {
    const std::int64_t batch = head.seq.batch;
    const std::int64_t at = head.seq.k_begin + static_cast<std::int64_t>(j);
    for (std::int64_t d = 0; d < head.dims.d; ++d) {
      const Index to = {batch, at, head.kv_head, d};
      out.outputs.dk.set(to, head.rounded(T(head.dims.scale) * sums.dk[j][d]));
      out.magnitude.dk.set(to, std::fabs(head.dims.scale) * sums.dk_size[j][d]);
    }
    for (std::int64_t d = 0; d < head.dims.dv; ++d) {
      const Index to = {batch, at, head.kv_head, d};
      out.outputs.dv.set(to, head.rounded(sums.dv[j][d]));
      out.magnitude.dv.set(to, sums.dv_size[j][d]);
    }
    out.exact.dk.set({batch, at, head.kv_head, 0}, !sums.seen[j]);
    out.exact.dv.set({batch, at, head.kv_head, 0}, !sums.seen[j]);
  }
}

template <class T>
void probs_row(const Case& c, const NaiveScores<T>& head, std::int64_t i, std::int64_t h, T lse,
               Naive& out) {
  const auto scores = head.scores(i, h);
  for (std::int64_t n = 0; n < c.problem.num_rows; ++n) {
    if (c.rows[n] != head.seq.q_begin + i) continue;
    for (std::int64_t j = 0; j < head.seq.len_k; ++j) {
      const auto& x = scores[j];
      if (x.s == head.kMinusInfinity) continue;
      const Index at = {head.seq.batch, h, n, j};
      const T P = std::exp(x.s - lse);
      out.outputs.probs.set(at, P);
      out.magnitude.probs.set(at, P * (1 + x.size + size_of_term(lse)));
      out.exact.probs.set(at, 0);
    }
  }
}

template <class T>
void attention(const Case& c, const Inputs& in, const Tensor& keep, Naive& out) {
  const std::vector<Sequence> all = sequences(c);
  const Dims dims(c.problem);
  for (std::int64_t b = 0; b < c.problem.batch; ++b) {
    const Sequence& seq = all[b];
    for (std::int64_t hk = 0; hk < dims.kv_heads; ++hk) {
      const NaiveScores<T> head(c, in, keep, seq, b, hk);
      Gradients<T> sums(head);
      for (std::int64_t h = hk * dims.group; h < (hk + 1) * dims.group; ++h) {
        for (std::int64_t i = 0; i < seq.len_q; ++i) {
          if (c.problem.op == Op::forward) {
            forward_row(head, i, h, out);
            continue;
          }
          const T lse = T(in.lse.get({seq.batch, h, seq.q_begin + i, 0}));
          if (lse == head.kMinusInfinity) continue;
          if (c.problem.op == Op::backward) backward_row(in, head, b, i, h, lse, sums, out);
          if (c.problem.op == Op::probs) probs_row(c, head, i, h, lse, out);
        }
      }
      if (c.problem.op == Op::backward) store(head, sums, out);
    }
  }
}

template <class T>
void merge(const Case& c, const Inputs& in, Naive& out) {
  const Dims dims(c.problem);
  const DType part_dtype = in.partial_o[0].dtype;
  constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();
  for_each({dims.batch, dims.heads, dims.rows_q, 1}, [&](const Index& at) {
    std::vector<std::size_t> parts;  // the ones that are not empty
    T m = kMinusInfinity;
    for (std::size_t n = 0; n < in.partial_lse.size(); ++n) {
      const T part = T(in.partial_lse[n].get(at));
      if (part != kMinusInfinity) parts.push_back(n);
      m = std::max(m, part);
    }
    if (parts.empty()) return;
    T sum = 0;
    for (std::size_t n : parts) sum += std::exp(T(in.partial_lse[n].get(at)) - m);
    const T lse = m + std::log(sum);
    for (std::int64_t d = 0; d < dims.dv; ++d) {
      const Index at_o = {at[0], at[2], at[1], d};
      T o = 0;
      double size = 0;
      for (std::size_t n : parts) {
        const T part = T(in.partial_lse[n].get(at)), value = T(in.partial_o[n].get(at_o));
        const T weight = std::exp(part - lse);
        o += weight * value;
        size += weight * std::fabs(value) * (1 + std::fabs(part) + std::fabs(lse));
      }
      out.outputs.o.set(at_o, round_to(dims.dtype, o));
      out.magnitude.o.set(at_o, size);
    }
    // One part alone comes through bit for bit, unless its dtype is wider than the result's.
    out.exact.o.set({at[0], at[2], at[1], 0}, parts.size() == 1 && part_dtype == dims.dtype);
    if (!out.outputs.lse.defined()) return;
    out.outputs.lse.set(at, lse);
    out.magnitude.lse.set(at, 1 + std::fabs(lse));
    out.exact.lse.set(at, parts.size() == 1);
  });
}

// Fills each defined output of a case: naive values as where nothing is seen, exactness everywhere.
Naive blank(const Case& c) {
  const Outputs shape = make_outputs(c);
  Naive out;
  const auto start = [&](Tensor Outputs::*member, bool whole_elements, double empty) {
    const Tensor& like = shape.*member;
    if (!like.defined()) return;
    Index exact_size = like.size;
    if (!whole_elements) exact_size[3] = 1;
    out.outputs.*member = Tensor(Dims(c.problem).aux, like.size);
    out.magnitude.*member = Tensor(DType::f64, like.size);
    out.exact.*member = Tensor(DType::boolean, exact_size);
    for_each(like.size, [&](const Index& at) {
      (out.outputs.*member).set(at, empty);
      (out.magnitude.*member).set(at, 0);
    });
    for_each(exact_size, [&](const Index& at) { (out.exact.*member).set(at, 1); });
  };
  start(&Outputs::o, false, 0);
  start(&Outputs::lse, false, -std::numeric_limits<double>::infinity());
  start(&Outputs::dq, false, 0);
  start(&Outputs::dk, false, 0);
  start(&Outputs::dv, false, 0);
  start(&Outputs::dbias, true, 0);
  start(&Outputs::dsinks, true, 0);
  start(&Outputs::probs, true, 0);
  start(&Outputs::keep_mask, true, 0);
  if (out.exact.dsinks.defined()) {
    for_each(out.exact.dsinks.size, [&](const Index& at) { out.exact.dsinks.set(at, 0); });
  }
  return out;
}

template <class T>
Naive compute(const Case& c, const Inputs& in, const Tensor& keep) {
  Naive out = blank(c);
  if (c.problem.op == Op::merge) {
    merge<T>(c, in, out);
  } else if (c.problem.op != Op::keep_mask) {
    attention<T>(c, in, keep, out);
  }
  return out;
}

}  // namespace

Naive naive(const Case& c, const Inputs& inputs, const Tensor& keep) {
  return c.problem.dtype == DType::f64 ? compute<double>(c, inputs, keep)
                                       : compute<float>(c, inputs, keep);
}

}  // namespace strobe::harness
