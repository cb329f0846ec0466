// Operations on single rows: what lies outside the sequences, merge, probabilities, keep mask.
#include <algorithm>
#include <limits>

#include "cpu/driver.h"
#include "cpu/items.h"
#include "cpu/merge.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// f(batch, begin, end) for each run of rows that belongs to no sequence. first[b]: where sequence b
// begins, allocated to first[b + 1] (varlen); used(b): the rows it uses of those.
template <class Used, class F>
void for_outside(const Job& job, const std::int32_t* first, std::int64_t rows, const Used& used,
                 const F& f) {
  if (job.p.lengths == STROBE_DENSE) return;
  for (std::int64_t b = 0; b < job.p.batch; ++b) {
    if (job.p.lengths == STROBE_PADDED) {
      f(b, used(b), rows);
    } else {
      f(std::int64_t{0}, first[b] + used(b), std::int64_t{first[b + 1]});
    }
  }
  if (job.p.lengths == STROBE_VARLEN) f(std::int64_t{0}, std::int64_t{first[job.p.batch]}, rows);
}

void zero_rows(const Job& job, const View& view, std::int64_t batch, std::int64_t begin,
               std::int64_t end, std::int64_t heads, std::int64_t dim) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::memset(view.at(batch, t, h), 0, static_cast<std::size_t>(dim) * job.element_bytes);
    }
  }
}

// The sequence that holds row t of a packed tensor; its length is 0 for rows past the last one.
Sequence sequence_of(const Job& job, std::int64_t t) {
  const std::int32_t* cu = job.args.cu_seqlens_q;
  const std::int64_t b = std::upper_bound(cu, cu + job.p.batch + 1, t) - cu - 1;
  if (b < job.p.batch) return job.sequence(b);
  return Sequence{0, 0, 0, 0, 0, 0, {}};
}

}  // namespace

void fill_outside_queries(const Job& job, const View& rows, std::int64_t heads, std::int64_t dim,
                          bool also_lse) {
  const std::int64_t total = job.p.lengths == STROBE_VARLEN ? job.p.total_q : job.p.seqlen_q;
  for_outside(
      job, job.args.cu_seqlens_q, total, [&](std::int64_t b) { return job.sequence(b).len_q; },
      [&](std::int64_t batch, std::int64_t begin, std::int64_t end) {
        zero_rows(job, rows, batch, begin, end, heads, dim);
        if (!also_lse || !job.args.lse) return;
        for (std::int64_t t = begin; t < end; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            *reinterpret_cast<float*>(job.lse.at(batch, t, h)) = kMinusInf;
          }
        }
      });
}

void fill_outside_keys(const Job& job, const View& rows, std::int64_t dim) {
  const std::int64_t total = job.p.lengths == STROBE_VARLEN ? job.p.total_k : job.p.seqlen_k;
  for_outside(
      job, job.args.cu_seqlens_k, total, [&](std::int64_t b) { return job.sequence(b).len_k; },
      [&](std::int64_t batch, std::int64_t begin, std::int64_t end) {
        zero_rows(job, rows, batch, begin, end, job.p.kv_heads, dim);
      });
}

void run_merge(const Job& job) {
  constexpr std::int64_t kMaxDim = 512;
  const bool varlen = job.p.lengths == STROBE_VARLEN;
  const std::int64_t batch = varlen ? 1 : job.p.batch;
  const std::int64_t rows = varlen ? job.p.total_q : job.p.seqlen_q;
  const std::size_t bytes = strobe_dtype_bytes(job.p.partial_dtype);
  parallel_for(job.executor, job.threads, batch * rows, [&](std::int64_t index, std::int32_t) {
    const std::int64_t b = index / rows, t = index % rows;
    float out[kMaxDim], part[kMaxDim];
    for (std::int64_t h = 0; h < job.p.heads; ++h) {
      const auto part_lse = [&](std::int64_t n) {
        const View view(job.args.partial_lse[n], job.p.lse_strides, sizeof(float));
        return *reinterpret_cast<const float*>(view.at(b, t, h));
      };
      const auto part_o = [&](std::int64_t n) -> const float* {
        const View view(job.args.partial_o[n], job.p.o_strides, bytes);
        const char* from = view.at(b, t, h);
        for (std::int64_t x = 0; x < job.p.head_dim_v; ++x) {
          part[x] = load_element(job.p.partial_dtype, from, x);
        }
        return part;
      };
      const float lse = merge_row(job.p.partials, part_lse, part_o, job.p.head_dim_v, out);
      store_row(job.p.dtype, out, job.p.head_dim_v, job.o.at(b, t, h));
      if (job.args.lse) *reinterpret_cast<float*>(job.lse.at(b, t, h)) = lse;
    }
  });
}

std::size_t probs_workspace(const Setup& setup) {
  return static_cast<std::size_t>(
      round_up(static_cast<std::int64_t>(setup.kernels.probs_scratch(setup.p, setup.tiling)), 256) *
      setup.threads);
}

void run_probs(const Setup& setup, const Job& job) {
  const std::size_t bytes = probs_workspace(setup) / static_cast<std::size_t>(setup.threads);
  const bool varlen = job.p.lengths == STROBE_VARLEN;
  const std::int64_t group =
      varlen ? 1 : setup.kernels.panel;  // rows of one panel share a sequence
  const std::int64_t groups = ceil_div(job.p.num_rows, group);
  const std::int64_t batch = varlen ? 1 : job.p.batch;
  parallel_for(job.executor, job.threads, batch * job.p.heads * groups,
               [&](std::int64_t index, std::int32_t worker) {
                 const std::int64_t first = index % groups * group;
                 const std::int64_t h = index / groups % job.p.heads;
                 const Sequence seq = varlen ? sequence_of(job, job.args.rows[first])
                                             : job.sequence(index / groups / job.p.heads);
                 setup.kernels.probs(job, setup.tiling, seq, h, first,
                                     std::min(group, job.p.num_rows - first),
                                     static_cast<char*>(job.args.workspace) + worker * bytes);
               });
}

void run_keep_mask(const Job& job) {
  const bool varlen = job.p.lengths == STROBE_VARLEN;
  const std::int64_t batch = varlen ? 1 : job.p.batch;
  parallel_for(
      job.executor, job.threads, batch * job.p.heads * job.p.num_rows,
      [&](std::int64_t index, std::int32_t) {
        const std::int64_t row = job.args.rows[index % job.p.num_rows];
        const std::int64_t h = index / job.p.num_rows % job.p.heads;
        const Sequence seq =
            varlen ? sequence_of(job, row) : job.sequence(index / job.p.num_rows / job.p.heads);
        const std::int64_t i = row - (varlen ? seq.q_begin : 0);
        std::uint8_t* out = job.args.keep_mask + index * job.p.seqlen_k;
        std::fill_n(out, job.p.seqlen_k, std::uint8_t{0});
        if (i >= seq.len_q) return;
        const core::PhiloxBlock stream = job.dropout_stream(seq.b, h);
        for (std::int64_t j = 0; j < seq.len_k; ++j) {
          const core::PhiloxBlock bits =
              core::dropout_bits(stream, static_cast<core::u32>(i), static_cast<core::u32>(j / 8));
          out[j] = core::dropout_draw(bits, static_cast<core::u32>(j % 8)) >= job.keep_threshold;
        }
      });
}

}  // namespace strobe::cpu
