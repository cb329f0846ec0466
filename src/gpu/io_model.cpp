#include "gpu/io_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/fa1_config.h"
#include "kernels/fa2_config.h"

namespace strobe::gpu::io {
namespace {

constexpr std::int64_t kElement = 2;  // bf16, f16

std::int64_t blocks_of(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }
std::int64_t up_to_8(std::int64_t n) { return (n + 7) / 8 * 8; }
int bucket(std::int64_t head_dim) { return head_dim <= 64 ? 64 : 128; }

// Bytes of one head: a tensor [seqlen, head_dim], and the score matrix.
struct Sizes {
  std::int64_t q, k, scores, p, lse;
  Sizes(const Shape& s, const StandardTiles& tiles)
      : q(s.seqlen_q * s.head_dim * kElement),
        k(s.seqlen_k * s.head_dim * kElement),
        scores(s.seqlen_q * up_to_8(s.seqlen_k) * tiles.score_bytes),
        p(s.seqlen_q * up_to_8(s.seqlen_k) * kElement),
        lse(s.seqlen_q * 4) {}
};

// x, y and z are bytes of the three matrices, x_times and y_times how often tiles read them.
Work product(const Shape& s, const char* name, std::int64_t x, std::int64_t x_times, std::int64_t y,
             std::int64_t y_times, std::int64_t z, std::int64_t tiles) {
  const std::int64_t n = s.head_batches();
  return {.name = name,
          .flops = n * 2 * s.seqlen_q * s.seqlen_k * s.head_dim,
          .read = n * (x * x_times + y * y_times),
          .written = n * z,
          .unique = n * (x + y + z),
          .reread = (x_times > 1 ? x : 0) + (y_times > 1 ? y : 0),
          .ctas = n * tiles};
}

Work by_rows(const Shape& s, const char* name, std::int64_t read, std::int64_t written) {
  const std::int64_t n = s.head_batches();
  return {.name = name,
          .read = n * read,
          .written = n * written,
          .unique = n * (read + written),
          .ctas = n * s.seqlen_q};
}

}  // namespace

std::vector<Work> standard_forward(const Shape& s, const StandardTiles& tiles) {
  const Sizes size(s, tiles);
  const std::int64_t m = blocks_of(s.seqlen_q, tiles.block_m);
  const std::int64_t n = blocks_of(up_to_8(s.seqlen_k), tiles.block_n);
  Work softmax = by_rows(s, "softmax", size.scores, size.p + size.lse);
  softmax.exponentials = s.head_batches() * s.seqlen_q * s.seqlen_k;
  return {product(s, "S = QK'", size.q, n, size.k, m, size.scores, m * n), softmax,
          product(s, "O = PV", size.p, 1, size.k, m, size.q, m)};
}

std::vector<Work> standard_backward(const Shape& s, const StandardTiles& tiles) {
  const Sizes size(s, tiles);
  const std::int64_t m = blocks_of(s.seqlen_q, tiles.block_m);
  const std::int64_t n = blocks_of(up_to_8(s.seqlen_k), tiles.block_n);
  const std::int64_t keys = blocks_of(s.seqlen_k, tiles.block_m);
  return {product(s, "dV = P'dO", size.p, 1, size.q, keys, size.k, keys),
          product(s, "dP = dOV'", size.q, n, size.k, m, size.scores, m * n),
          by_rows(s, "dS", size.scores + size.p + 2 * size.q, size.p),
          product(s, "dQ = dSK", size.p, 1, size.k, m, size.q, m),
          product(s, "dK = dS'Q", size.p, 1, size.q, keys, size.k, keys)};
}

Work fa1_forward(const Shape& s, Blocks blocks) {
  const std::int64_t heads = s.head_batches(), steps = blocks_of(s.seqlen_k, blocks.n);
  const std::int64_t q = s.seqlen_q * s.head_dim * kElement, k = s.seqlen_k * s.head_dim * kElement;
  // O, l and m of all rows, float32: written at first, read and written at every step, read at
  // last.
  const std::int64_t running = s.seqlen_q * (up_to_8(s.head_dim) + 2) * 4;
  const std::int64_t lse = s.seqlen_q * 4;
  return {.name = "FlashAttention-1",
          .flops = heads * 4 * s.seqlen_q * s.seqlen_k * s.head_dim,
          .exponentials = heads * s.seqlen_q * s.seqlen_k,
          .read = heads * (2 * k + steps * (q + running) + running),
          .written = heads * (running + steps * running + q + lse),
          .unique = heads * (2 * k + 2 * q + lse),
          .reread = q + running,
          .heads_at_once = true,
          .ctas = heads};
}

Work fa1_backward(const Shape& s, Blocks blocks) {
  const std::int64_t heads = s.head_batches(), steps = blocks_of(s.seqlen_k, blocks.n);
  const std::int64_t q = s.seqlen_q * s.head_dim * kElement, k = s.seqlen_k * s.head_dim * kElement;
  const std::int64_t running = s.seqlen_q * up_to_8(s.head_dim) * 4;  // dQ
  const std::int64_t lse = s.seqlen_q * 4;
  return {.name = "FlashAttention-1",
          .flops = heads * 10 * s.seqlen_q * s.seqlen_k * s.head_dim,
          .exponentials = heads * s.seqlen_q * s.seqlen_k,
          .read = heads * (2 * k + steps * (3 * q + lse + running) + running),
          .written = heads * (running + steps * running + q + 2 * k),
          .unique = heads * (4 * k + 4 * q + lse),
          .reread = 3 * q + lse + running,
          .heads_at_once = true,
          .ctas = heads};
}

Work fa2_forward(const Shape& s, Blocks blocks) {
  const std::int64_t heads = s.head_batches(), tiles = blocks_of(s.seqlen_q, blocks.m);
  const std::int64_t q = s.seqlen_q * s.head_dim * kElement, k = s.seqlen_k * s.head_dim * kElement;
  const std::int64_t lse = s.seqlen_q * 4;
  return {.name = "FlashAttention-2",
          .flops = heads * 4 * s.seqlen_q * s.seqlen_k * s.head_dim,
          .exponentials = heads * s.seqlen_q * s.seqlen_k,
          .read = heads * (q + tiles * 2 * k),
          .written = heads * (q + lse),
          .unique = heads * (2 * q + 2 * k + lse),
          .reread = 2 * k,  // heads share the cache in sections that fit (core/scheduler.h)
          .ctas = heads * tiles};
}

Blocks fa1_forward_blocks(std::int64_t head_dim) {
  const auto c = kernels::fa1_fwd_config(core::Dtype::kBf16, bucket(head_dim));
  return {c.block_m, c.block_n};
}
Blocks fa1_backward_blocks(std::int64_t head_dim) {
  const auto c = kernels::fa1_bwd_config(core::Dtype::kBf16, bucket(head_dim));
  return {c.block_m, c.block_n};
}
Blocks fa2_forward_blocks(std::int64_t head_dim) {
  const auto c =
      kernels::fa2_fwd_config(core::Dtype::kBf16, bucket(head_dim), kernels::Features::kPlain);
  return {c.block_m, c.block_n};
}

std::int64_t standard_workspace(const Shape& s, const StandardTiles& tiles) {
  const Sizes size(s, tiles);
  return s.head_batches() * (size.scores + size.p);
}
std::int64_t fa1_workspace(const Shape& s, bool backward) {
  return s.head_batches() * s.seqlen_q * (up_to_8(s.head_dim) + (backward ? 0 : 2)) * 4;
}

std::span<const Gpu> gpus() {
  static constexpr Gpu kGpus[] = {
      {"h200", "NVIDIA H200 SXM", 989e12, 4.8e12, 16 * 132 * 1.83e9, std::int64_t{50} << 20, 132},
      {"h100", "NVIDIA H100 SXM", 989e12, 3.35e12, 16 * 132 * 1.83e9, std::int64_t{50} << 20, 132},
      {"a100", "NVIDIA A100 SXM 80 GB", 312e12, 2.039e12, 16 * 108 * 1.41e9, std::int64_t{40} << 20,
       108},
  };
  return kGpus;
}
const Gpu* find_gpu(std::string_view name) {
  for (const Gpu& gpu : gpus()) {
    if (name == gpu.name) return &gpu;
  }
  return nullptr;
}

double seconds(const Work& w, const Gpu& gpu) {
  const std::int64_t together = w.heads_at_once ? std::min<std::int64_t>(w.ctas, gpu.sms) : 1;
  const bool cached = w.reread * together <= gpu.l2_bytes;
  const auto bytes = static_cast<double>(cached ? w.unique : w.bytes());
  const double busy = std::min(1.0, static_cast<double>(w.ctas) / gpu.sms);
  return std::max({bytes / gpu.bytes, static_cast<double>(w.flops) / gpu.tensor_flops,
                   static_cast<double>(w.exponentials) / gpu.exponentials}) /
         std::max(busy, 1e-9);
}
double seconds(std::span<const Work> work, const Gpu& gpu) {
  double total = 0;
  for (const Work& w : work) total += seconds(w, gpu);
  return total;
}

Work sum(std::span<const Work> work, std::string name) {
  Work total = {.name = std::move(name)};
  for (const Work& w : work) {
    total.flops += w.flops;
    total.exponentials += w.exponentials;
    total.read += w.read;
    total.written += w.written;
    total.unique += w.unique;
  }
  return total;
}

namespace {

struct Row {
  Work work;
  double time = 0;         // predicted, seconds
  std::int64_t extra = 0;  // bytes of workspace
};

std::vector<Row> rows(const Shape& s, const Gpu* gpu, bool backward) {
  const auto time = [&](std::span<const Work> work) { return gpu ? seconds(work, *gpu) : 0; };
  const std::vector<Work> parts = backward ? standard_backward(s) : standard_forward(s);
  std::vector<Row> all;
  for (const Work& part : parts) all.push_back({part, time({&part, 1}), 0});
  all.push_back({sum(parts, "standard"), time(parts), standard_workspace(s)});
  const Work fa1 = backward ? fa1_backward(s, fa1_backward_blocks(s.head_dim))
                            : fa1_forward(s, fa1_forward_blocks(s.head_dim));
  all.push_back({fa1, time({&fa1, 1}), fa1_workspace(s, backward)});
  if (!backward) {
    const Work fa2 = fa2_forward(s, fa2_forward_blocks(s.head_dim));
    all.push_back({fa2, time({&fa2, 1}), 0});
  }
  return all;
}

}  // namespace

std::string table(const Shape& s, const Gpu* gpu, bool backward) {
  std::string text = fmt::format(
      "{}, {} heads, {} queries x {} keys, head_dim {}, bf16, no mask\n\n"
      "{:<18}{:>12}{:>12}{:>12}{:>14}{:>12}{}\n",
      backward ? "backward" : "forward", s.head_batches(), s.seqlen_q, s.seqlen_k, s.head_dim, "",
      "GFLOP", "GB read", "GB written", "FLOP/byte", "extra GB",
      gpu ? fmt::format("{:>14}", fmt::format("us, {}", gpu->name)) : "");
  const auto giga = [](std::int64_t x) { return static_cast<double>(x) * 1e-9; };
  for (const Row& row : rows(s, gpu, backward)) {
    const Work& w = row.work;
    if (w.name == "standard") text += '\n';
    text +=
        fmt::format("{:<18}{:>12.3f}{:>12.4f}{:>12.4f}{:>14.1f}{:>12.4f}", w.name, giga(w.flops),
                    giga(w.read), giga(w.written), w.intensity(), giga(row.extra));
    if (gpu) text += fmt::format("{:>14.1f}", row.time * 1e6);
    text += '\n';
  }
  if (gpu)
    text += fmt::format("\nTimes are those of the roofline of {}: no kernel is faster.\n",
                        gpu->description);
  return text;
}

std::string json(const Shape& s, const Gpu* gpu, bool backward) {
  std::string list;
  for (const Row& row : rows(s, gpu, backward)) {
    const Work& w = row.work;
    list += fmt::format(
        "{}\n    {{\"name\": \"{}\", \"flops\": {}, \"exponentials\": {}, \"bytes_read\": {}, "
        "\"bytes_written\": {}, \"flops_per_byte\": {:.3f}, \"workspace_bytes\": {}",
        list.empty() ? "" : ",", w.name, w.flops, w.exponentials, w.read, w.written, w.intensity(),
        row.extra);
    if (gpu) list += fmt::format(", \"seconds\": {:.4e}", row.time);
    list += '}';
  }
  return fmt::format(
      "{{\"op\": \"{}\", \"batch\": {}, \"heads\": {}, \"seqlen_q\": {}, \"seqlen_k\": {}, "
      "\"head_dim\": {}, \"gpu\": {},\n  \"work\": [{}\n  ]}}\n",
      backward ? "backward" : "forward", s.batch, s.heads, s.seqlen_q, s.seqlen_k, s.head_dim,
      gpu ? fmt::format("\"{}\"", gpu->name) : "null", list);
}

}  // namespace strobe::gpu::io
