// The arithmetic of the papers, for our kernels: how many bytes each reads from and writes to
// device memory, how many operations it makes, and what that says about time on a GPU. Closed
// forms; the emulator counts the same to the byte (tests/gpu/fa1_io_test.cpp).
//
// Of attention without masks or dropout, every query head with its own K and V.
#ifndef STROBE_SRC_GPU_IO_MODEL_H_
#define STROBE_SRC_GPU_IO_MODEL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strobe::gpu::io {

struct Shape {
  std::int64_t batch = 1, heads = 1;
  std::int64_t seqlen_q = 0, seqlen_k = 0;
  std::int64_t head_dim = 0;

  std::int64_t head_batches() const { return batch * heads; }
};

// One launch, or a sum of launches; all heads together.
struct Work {
  std::string name;
  std::int64_t flops = 0;         // of matrix products, 2 per multiply-add
  std::int64_t exponentials = 0;  // of visible scores
  std::int64_t read = 0;          // bytes asked of device memory, as if there were no cache
  std::int64_t written = 0;
  std::int64_t unique = 0;     // bytes of the tensors touched, each once: with an endless cache
  std::int64_t reread = 0;     // bytes of one head that must stay in the level-2 cache for that
  bool heads_at_once = false;  // as many heads as SMs re-read theirs at once; else one by one
  std::int64_t ctas = 0;       // of the grid

  std::int64_t bytes() const { return read + written; }
  double intensity() const { return static_cast<double>(flops) / static_cast<double>(bytes()); }
};

struct Blocks {
  int m, n;  // query rows and keys
};

// The operations of standard attention. score_bytes: 4 as our rows have S, 2 as the papers.
struct StandardTiles {
  int block_m = 128, block_n = 128;
  int score_bytes = 4;
};
std::vector<Work> standard_forward(const Shape& shape, const StandardTiles& tiles = {});
// From P on, as the papers have it: recomputing P is standard_forward's first two operations.
std::vector<Work> standard_backward(const Shape& shape, const StandardTiles& tiles = {});
Work fa1_forward(const Shape& shape, Blocks blocks);
Work fa1_backward(const Shape& shape, Blocks blocks);
Work fa2_forward(const Shape& shape, Blocks blocks);

// The blocks that the shipped rows have.
Blocks fa1_forward_blocks(std::int64_t head_dim);
Blocks fa1_backward_blocks(std::int64_t head_dim);
Blocks fa2_forward_blocks(std::int64_t head_dim);

// Bytes that live beside the inputs and outputs.
std::int64_t standard_workspace(const Shape& shape, const StandardTiles& tiles = {});
std::int64_t fa1_workspace(const Shape& shape, bool backward);

// What a GPU's data sheet says.
struct Gpu {
  const char* name;
  const char* description;
  double tensor_flops;  // per second, dense bf16
  double bytes;         // per second, device memory
  double exponentials;  // per second: 16 per clock and SM
  std::int64_t l2_bytes;
  int sms;
};
std::span<const Gpu> gpus();
const Gpu* find_gpu(std::string_view name);

// The roofline's time: the longest of moving the bytes, multiplying and exponentiating, on as many
// SMs as the grid can use. No kernel is faster; launches, latencies and all else come on top. Bytes
// that stay in the level-2 cache are free.
double seconds(const Work& work, const Gpu& gpu);
double seconds(std::span<const Work> work, const Gpu& gpu);  // one after the other
Work sum(std::span<const Work> work, std::string name);

// "h200", or null text for no prediction. Columns: FLOPs, bytes, FLOPs per byte, time.
std::string table(const Shape& shape, const Gpu* gpu, bool backward);
std::string json(const Shape& shape, const Gpu* gpu, bool backward);

}  // namespace strobe::gpu::io

#endif  // STROBE_SRC_GPU_IO_MODEL_H_
