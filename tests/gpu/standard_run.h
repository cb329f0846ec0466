// Standard attention's kernels, run directly, operation by operation.
#ifndef STROBE_TESTS_GPU_STANDARD_RUN_H_
#define STROBE_TESTS_GPU_STANDARD_RUN_H_

#include <cstddef>
#include <functional>
#include <map>

#include "core/philox.h"
#include "fa1_emulate.h"
#include "kernels/standard_matmul.h"
#include "kernels/standard_rows.h"

namespace strobe::gpu_test {

// One report per operation, in order.
using Operations = std::vector<std::pair<std::string, emu::Report>>;

template <class T, core::Dtype kType, int kHeadDim, core::Dtype kScores = core::Dtype::kF32>
class Standard {
 public:
  Standard(const Shape& s, Tensors<T>& t, How how = {})
      : s_(s),
        t_(t),
        how_(how),
        columns_((s.seqlen_k + 7) / 8 * 8),
        scores_(static_cast<std::size_t>(s.q_rows() * columns_), Score{}),
        p_(scores_.size(), T{0xFFFF}),
        dropped_(p_) {}

  Operations forward() {
    probabilities();
    multiply<kernels::Product::kQueriesDim, kType>("O = PV", matrix(kept()), keys(t_.v),
                                                   queries(t_.o), 1.0f, "o", t_.o);
    return std::move(done_);
  }

  // Recomputes P first, as no workspace outlives a run.
  Operations backward() {
    using kernels::Product;
    probabilities();
    multiply<Product::kKeysDim, kType>("dV = P'dO", matrix(kept()), queries(t_.dout), keys(t_.dv),
                                       1.0f, "dv", t_.dv);
    multiply<Product::kQueriesKeys, kScores>("dP = dOV'", queries(t_.dout), keys(t_.v),
                                             matrix(scores_), 1.0f, "dp", scores_);
    rows<kernels::RowOperation::kScoreGradients>("dS");
    multiply<Product::kQueriesDim, kType>("dQ = dSK", matrix(p_), keys(t_.k), queries(t_.dq),
                                          s_.scale(), "dq", t_.dq);
    multiply<Product::kKeysDim, kType>("dK = dS'Q", matrix(p_), queries(t_.q), keys(t_.dk),
                                       s_.scale(), "dk", t_.dk);
    return std::move(done_);
  }

 private:
  using Score = dev::Element<kScores>;
  struct Operand {
    kernels::TensorArg arg;
    bool vector;
    std::uint64_t bytes;
  };

  void probabilities() {
    multiply<kernels::Product::kQueriesKeys, kScores>("S = QK'", queries(t_.q), keys(t_.k),
                                                      matrix(scores_), s_.scale(), "s", scores_);
    if (s_.left >= 0 || s_.right >= 0) rows<kernels::RowOperation::kMask>("mask");
    rows<kernels::RowOperation::kSoftmax>("softmax");
    if (s_.dropout > 0) rows<kernels::RowOperation::kDropout>("dropout");
  }

  std::vector<T>& kept() { return s_.dropout > 0 ? dropped_ : p_; }
  Operand queries(std::vector<T>& x) {
    return {{x.data(), rows_of(s_.heads, s_.seqlen_q, s_.head_dim)},
            s_.head_dim % 8 == 0,
            x.size() * sizeof(T)};
  }
  Operand keys(std::vector<T>& x) {
    return {{x.data(), rows_of(s_.kv_heads, s_.seqlen_k, s_.head_dim)},
            s_.head_dim % 8 == 0,
            x.size() * sizeof(T)};
  }
  template <class E>
  Operand matrix(std::vector<E>& x) {
    const std::int64_t head = std::int64_t{s_.seqlen_q} * columns_;
    return {{x.data(), {head * s_.heads, columns_, head}}, true, x.size() * sizeof(E)};
  }

  template <kernels::Product kProduct, core::Dtype kOut, class V>
  void multiply(const char* name, Operand x, Operand y, Operand z, float scale, const char* z_name,
                V& out) {
    constexpr auto kConfig = kernels::standard_matmul_config(kType, kOut, kProduct, kHeadDim);
    const auto blocks = [](int n, int block) {
      return static_cast<unsigned>((n + block - 1) / block);
    };
    kernels::MatmulParams p = {};
    p.a = attention(s_);
    p.x = x.arg;
    p.y = y.arg;
    p.z = z.arg;
    p.x_vector = x.vector;
    p.y_vector = y.vector;
    p.z_vector = z.vector;
    p.dim = s_.head_dim;
    p.columns = columns_;
    p.scale = scale;
    const bool by_keys = kProduct == kernels::Product::kKeysDim;
    p.blocks_m = blocks(by_keys ? s_.seqlen_k : s_.seqlen_q, kConfig.block_m);
    p.blocks_n = blocks(kProduct == kernels::Product::kQueriesKeys ? columns_ : s_.head_dim,
                        kConfig.block_n);
    emu::Memory memory;
    memory.add("x", x.arg.data, x.bytes, emu::TensorKind::kInput);
    memory.add("y", y.arg.data, y.bytes, emu::TensorKind::kInput);
    add_output(memory, z_name, out);
    run<dev::StandardMatmul<kConfig>>(
        name, p, s_.batch * (by_keys ? s_.kv_heads : s_.heads) * p.blocks_m * p.blocks_n, memory);
  }

  template <kernels::RowOperation kOperation>
  void rows(const char* name) {
    constexpr kernels::RowsConfig kConfig = {kType, kScores, kOperation};
    using K = dev::StandardRows<kConfig>;
    kernels::RowsParams p = {};
    p.a = attention(s_);
    p.scores = scores_.data();
    p.p = p_.data();
    p.dropped = dropped_.data();
    p.lse = t_.lse.data();
    p.lse_stride = lse_of(s_);
    p.o = queries(t_.o).arg;
    p.dout = queries(t_.dout).arg;
    p.columns = columns_;
    p.cached = std::min(columns_, cached_columns);
    emu::Memory memory;
    memory.add("s", scores_.data(), scores_.size() * sizeof(Score), emu::TensorKind::kState);
    if (kOperation == kernels::RowOperation::kScoreGradients) {
      memory.add("o", t_.o.data(), t_.o.size() * sizeof(T), emu::TensorKind::kInput);
      memory.add("dout", t_.dout.data(), t_.dout.size() * sizeof(T), emu::TensorKind::kInput);
    }
    const bool makes_p = kOperation == kernels::RowOperation::kSoftmax;
    memory.add("p", p_.data(), p_.size() * sizeof(T),
               makes_p ? emu::TensorKind::kOutput : emu::TensorKind::kState);
    add_output(memory, "dropped", dropped_);
    add_output(memory, "lse", t_.lse);
    run<K>(name, p, s_.q_rows(), memory);
  }

  template <class K>
  void run(const char* name, const typename K::Params& p, std::int64_t grid, emu::Memory& memory) {
    emu::Report report;
    emulate<K>(p, grid, memory, report, how_);
    memory.add_traffic_to(report);
    done_.emplace_back(name, std::move(report));
  }

 public:
  int cached_columns = 64;  // few, so that both ways are taken

 private:
  Shape s_;
  Tensors<T>& t_;
  How how_;
  int columns_;
  std::vector<Score> scores_;
  std::vector<T> p_, dropped_;
  Operations done_;
};

}  // namespace strobe::gpu_test

#endif  // STROBE_TESTS_GPU_STANDARD_RUN_H_
