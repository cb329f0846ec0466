// FlashAttention-1's kernels, run directly.
#ifndef STROBE_TESTS_GPU_FA1_RUN_H_
#define STROBE_TESTS_GPU_FA1_RUN_H_

#include <cstddef>

#include "core/philox.h"
#include "fa1_emulate.h"
#include "kernels/fa1_bwd.h"
#include "kernels/fa1_fwd.h"

namespace strobe::gpu_test {

inline int padded(int head_dim) { return (head_dim + 7) / 8 * 8; }

template <class T, kernels::Fa1Config C>
emu::Report fa1_forward(const Shape& s, Tensors<T>& t, How how = {}) {
  const auto rows = static_cast<std::size_t>(s.q_rows());
  std::vector<float> run_o(rows * padded(s.head_dim), NAN), l(rows, NAN), m(rows, NAN);
  kernels::Fa1FwdParams p = {};
  p.a = attention(s);
  p.q = {t.q.data(), rows_of(s.heads, s.seqlen_q, s.head_dim)};
  p.k = {t.k.data(), rows_of(s.kv_heads, s.seqlen_k, s.head_dim)};
  p.v = {t.v.data(), p.k.stride};
  p.o = {t.o.data(), p.q.stride};
  p.lse = t.lse.data();
  p.lse_stride = lse_of(s);
  p.run = {lse_of(s), padded(s.head_dim)};
  p.run_o = run_o.data();
  p.run_l = l.data();
  p.run_m = m.data();
  emu::Memory memory;
  add_inputs(memory, t);
  add_output(memory, "o", t.o);
  add_output(memory, "lse", t.lse);
  add_output(memory, "run_o", run_o);
  add_output(memory, "l", l);
  add_output(memory, "m", m);
  emu::Report report;
  emulate<dev::Fa1Fwd<C>>(p, s.batch * s.heads, memory, report, how);
  memory.add_traffic_to(report);
  return report;
}

// Of exact O and LSE, rounded.
template <class T, kernels::Fa1Config C>
emu::Report fa1_backward(const Shape& s, Tensors<T>& t, How how = {}) {
  const auto rows = static_cast<std::size_t>(s.q_rows());
  std::vector<float> run_dq(rows * padded(s.head_dim), NAN);
  kernels::Fa1BwdParams p = {};
  p.g.a = attention(s);
  p.g.q = {t.q.data(), rows_of(s.heads, s.seqlen_q, s.head_dim)};
  p.g.k = {t.k.data(), rows_of(s.kv_heads, s.seqlen_k, s.head_dim)};
  p.g.v = {t.v.data(), p.g.k.stride};
  p.g.o = {t.o.data(), p.g.q.stride};
  p.g.dout = {t.dout.data(), p.g.q.stride};
  p.g.dq = {t.dq.data(), p.g.q.stride};
  p.g.dk = {t.dk.data(), p.g.k.stride};
  p.g.dv = {t.dv.data(), p.g.k.stride};
  p.g.lse = t.lse.data();
  p.g.lse_stride = lse_of(s);
  p.run = {lse_of(s), padded(s.head_dim)};
  p.run_dq = run_dq.data();
  emu::Memory memory;
  add_inputs(memory, t);
  memory.add("o", t.o.data(), t.o.size() * sizeof(T), emu::TensorKind::kInput);
  memory.add("lse", t.lse.data(), t.lse.size() * 4, emu::TensorKind::kInput);
  add_output(memory, "dq", t.dq);
  add_output(memory, "dk", t.dk);
  add_output(memory, "dv", t.dv);
  add_output(memory, "run_dq", run_dq);
  emu::Report report;
  emulate<dev::Fa1Bwd<C>>(p, s.batch * s.kv_heads, memory, report, how);
  memory.add_traffic_to(report);
  return report;
}

}  // namespace strobe::gpu_test

#endif  // STROBE_TESTS_GPU_FA1_RUN_H_
