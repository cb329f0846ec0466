// Runs kernels straight on the emulator, without a plan, so that tests can take block sizes that no
// row ships and read the counters of each kernel alone. Values are compared with float64 here as
// well; the harness, which shares no code with kernels, judges the rows.
#ifndef STROBE_TESTS_GPU_FA1_EMULATE_H_
#define STROBE_TESTS_GPU_FA1_EMULATE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "emu/machine.h"
#include "isa/isa.h"
#include "kernels/params.h"

namespace strobe::gpu_test {

namespace dev = strobe::STROBE_TARGET;
using core::bf16;
using core::f16;

struct Shape {
  int batch = 1, heads = 1, kv_heads = 1;
  int seqlen_q = 64, seqlen_k = 64;
  int head_dim = 64;
  int left = -1, right = -1;  // band; the last query is aligned with the last key
  double dropout = 0;
  bool growing = true;  // maxima grow with j, so that every block rescales

  std::int64_t q_rows() const { return std::int64_t{batch} * heads * seqlen_q; }
  std::int64_t k_rows() const { return std::int64_t{batch} * kv_heads * seqlen_k; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  bool visible(int i, int j) const {
    const int diagonal = i + seqlen_k - seqlen_q;
    return (left < 0 || j >= diagonal - left) && (right < 0 || j <= diagonal + right);
  }
};

inline double value(bf16 x) { return core::bit_cast<float>(std::uint32_t{x.bits} << 16); }
inline double value(f16 x) { return emu::f16_value(x.bits); }

// Contiguous [batch, seq, heads, dim], and what kernels write, poisoned.
template <class T>
struct Tensors {
  std::vector<T> q, k, v, dout, o, dq, dk, dv;
  std::vector<float> lse;

  explicit Tensors(const Shape& s, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<T>& x, std::int64_t rows) {
      x.resize(static_cast<std::size_t>(rows * s.head_dim));
      for (T& e : x) e = dev::isa::from_float<T>(normal(random));
    };
    fill(q, s.q_rows());
    fill(k, s.k_rows());
    fill(v, s.k_rows());
    fill(dout, s.q_rows());
    if (s.growing) {
      for (std::size_t x = 0; x < k.size(); ++x) {
        const auto row = static_cast<double>(x / s.head_dim / s.kv_heads % s.seqlen_k);
        k[x] =
            dev::isa::from_float<T>(static_cast<float>(value(k[x]) * (0.5 + 2 * row / s.seqlen_k)));
      }
    }
    o.assign(q.size(), T{0xFFFF});
    dq = o;
    dk.assign(k.size(), T{0xFFFF});
    dv = dk;
    lse.assign(static_cast<std::size_t>(s.q_rows()), NAN);
  }
};

inline kernels::Strides rows_of(int heads, int seqlen, int dim) {
  return {std::int64_t{seqlen} * heads * dim, std::int64_t{heads} * dim, dim};
}
inline kernels::Strides lse_of(const Shape& s) {
  return {std::int64_t{s.heads} * s.seqlen_q, 1, s.seqlen_q};
}

inline kernels::Attention attention(const Shape& s) {
  kernels::Attention a = {};
  a.batch = s.batch;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = a.head_dim_v = s.head_dim;
  a.pack = 1;
  a.ratio = a.heads / a.kv_heads;
  a.packed_heads = a.heads;
  a.vector_loads = s.head_dim % 8 == 0;
  a.lengths.seqlen_q = s.seqlen_q;
  a.lengths.seqlen_k = s.seqlen_k;
  a.band = {s.left, s.right, 0};
  a.auto_offset = 1;
  a.scale = s.scale();
  if (s.dropout > 0) {
    a.mod.keep_threshold = core::dropout_threshold(s.dropout);
    a.mod.keep_scale = static_cast<float>(1 / (1 - s.dropout));
    a.mod.seed = 77;
    a.mod.offset = 5;
  }
  return a;
}

template <class T>
void add_inputs(emu::Memory& memory, const Tensors<T>& t) {
  const auto input = [&](const char* name, const auto& x) {
    memory.add(name, x.data(), x.size() * sizeof(x[0]), emu::TensorKind::kInput);
  };
  input("q", t.q);
  input("k", t.k);
  input("v", t.v);
  input("dout", t.dout);
}
template <class V>
void add_output(emu::Memory& memory, const char* name, V& x) {
  memory.add(name, x.data(), x.size() * sizeof(x[0]), emu::TensorKind::kOutput);
}

struct How {
  emu::Landing landing = emu::Landing::kRandom;
  std::uint64_t seed = 1;
};

template <class K>
void emulate(const typename K::Params& params, std::int64_t grid, emu::Memory& memory,
             emu::Report& report, How how = {}, std::uint32_t shared_bytes = K::kSharedBytes) {
  emu::Launch launch = {};
  launch.name = "kernel";
  launch.grid = static_cast<std::uint32_t>(grid);
  launch.threads = K::kThreads;
  launch.shared_bytes = shared_bytes;
  launch.entry = [](const void* p) { K::run(*static_cast<const typename K::Params*>(p)); };
  launch.params = &params;
  launch.seed = how.seed;
  launch.landing = how.landing;
  emu::run(launch, memory, report);
  memory.end_launch();
}

// Float64 attention of every head, forward and backward.
struct Exact {
  std::vector<double> o, lse, dq, dk, dv;
};
template <class T>
Exact exact(const Shape& s, const Tensors<T>& t) {
  const int d = s.head_dim, group = s.heads / s.kv_heads;
  Exact e;
  e.o.assign(t.q.size(), 0);
  e.dq = e.o;
  e.dk.assign(t.k.size(), 0);
  e.dv = e.dk;
  e.lse.assign(static_cast<std::size_t>(s.q_rows()), -INFINITY);
  std::vector<double> p(static_cast<std::size_t>(s.seqlen_k)), dp(p), keep(p);
  for (int bh = 0; bh < s.batch * s.heads; ++bh) {
    const int b = bh / s.heads, h = bh % s.heads;
    const auto qrow = [&](int i) { return ((std::size_t(b) * s.seqlen_q + i) * s.heads + h) * d; };
    const auto krow = [&](int j) {
      return ((std::size_t(b) * s.seqlen_k + j) * s.kv_heads + h / group) * d;
    };
    const core::PhiloxBlock stream = core::dropout_stream(77, 5, bh);
    for (int i = 0; i < s.seqlen_q; ++i) {
      double top = -INFINITY, sum = 0, delta = 0;
      for (int j = 0; j < s.seqlen_k; ++j) {
        p[j] = -INFINITY;
        if (!s.visible(i, j)) continue;
        double dot = 0;
        for (int x = 0; x < d; ++x) dot += value(t.q[qrow(i) + x]) * value(t.k[krow(j) + x]);
        p[j] = dot * s.scale();
        top = std::max(top, p[j]);
      }
      if (top == -INFINITY) continue;
      for (double& x : p) sum += x = std::exp(x - top);
      e.lse[std::size_t(bh) * s.seqlen_q + i] = top + std::log(sum);
      for (int j = 0; j < s.seqlen_k; ++j) {
        p[j] /= sum;
        keep[j] = 1;
        if (s.dropout > 0) {
          const auto bits = core::dropout_bits(stream, i, j / 8);
          const bool kept = core::dropout_draw(bits, j % 8) >= core::dropout_threshold(s.dropout);
          keep[j] = kept ? 1 / (1 - s.dropout) : 0;
        }
        dp[j] = 0;
        for (int x = 0; x < d; ++x) {
          const double dout = value(t.dout[qrow(i) + x]), v = value(t.v[krow(j) + x]);
          e.o[qrow(i) + x] += p[j] * keep[j] * v;
          e.dv[krow(j) + x] += p[j] * keep[j] * dout;
          dp[j] += keep[j] * dout * v;
        }
        delta += p[j] * dp[j];
      }
      for (int j = 0; j < s.seqlen_k; ++j) {
        const double ds = p[j] * (dp[j] - delta) * s.scale();
        for (int x = 0; x < d; ++x) {
          e.dq[qrow(i) + x] += ds * value(t.k[krow(j) + x]);
          e.dk[krow(j) + x] += ds * value(t.q[qrow(i) + x]);
        }
      }
    }
  }
  return e;
}

// O and LSE as a forward pass would have left them.
template <class T>
void set_forward(const Exact& e, Tensors<T>& t) {
  for (std::size_t x = 0; x < t.o.size(); ++x) t.o[x] = dev::isa::from_float<T>(float(e.o[x]));
  for (std::size_t x = 0; x < t.lse.size(); ++x) t.lse[x] = static_cast<float>(e.lse[x]);
}

template <class T>
void expect_close(const char* what, const std::vector<T>& got, const std::vector<double>& want,
                  double tolerance) {
  double largest = 0;
  for (double x : want) largest = std::max(largest, std::isinf(x) ? 0 : std::fabs(x));
  for (std::size_t x = 0; x < want.size(); ++x) {
    double g;
    if constexpr (sizeof(T) == 4) {
      g = got[x];
    } else {
      g = value(got[x]);
    }
    if (std::isinf(want[x]) && g == want[x]) continue;
    ASSERT_LE(std::fabs(g - want[x]), tolerance * std::max(largest, 1.0))
        << what << "[" << x << "] is " << g << ", should be " << want[x];
  }
}

// Bytes that all launches so far have read from (or written to) a tensor.
inline std::uint64_t bytes_read(const emu::Report& r, const std::string& name) {
  for (const auto& t : r.tensors) {
    if (t.name == name) return t.bytes_read;
  }
  return 0;
}
inline std::uint64_t all_bytes(const emu::Report& r) {
  std::uint64_t sum = 0;
  for (const auto& t : r.tensors) sum += t.bytes_read + t.bytes_written + t.bytes_reduced;
  return sum;
}

}  // namespace strobe::gpu_test

#endif  // STROBE_TESTS_GPU_FA1_EMULATE_H_
