// The launch list of one run, with room for the parameters of its kernels. It lives on the stack of
// run(): nothing is allocated.
#ifndef STROBE_SRC_GPU_PROGRAM_H_
#define STROBE_SRC_GPU_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>

#include "gpu/launch.h"
#include "gpu/shapes.h"

namespace strobe::gpu {

class Program {
 public:
  static constexpr std::size_t kMaxSteps = 24;
  static constexpr std::size_t kParamBytes = 16384;

  Program() = default;
  Program(const Program&) = delete;  // its steps point into it
  Program& operator=(const Program&) = delete;

  // A launch of `grid` CTAs of a row. Returns the step, for what is unusual (clusters, overlap).
  template <class Params>
  Launch& launch(const LoadedKernel& kernel, const RowShape& shape, std::uint32_t grid,
                 const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= 4000);
    constexpr std::size_t kAlignment = alignof(std::max_align_t);
    params_used_ = (params_used_ + kAlignment - 1) / kAlignment * kAlignment;
    overflow_ |=
        params_used_ + sizeof(Params) > kParamBytes || sizeof(Params) != shape.params_bytes;
    std::byte* const at = overflow_ ? params_.data() : params_.data() + params_used_;
    std::memcpy(at, &params, sizeof(Params));
    params_used_ += overflow_ ? 0 : sizeof(Params);
    return add(Launch{.kernel = &kernel,
                      .grid = grid,
                      .block = shape.threads,
                      .shared_bytes = shape.shared_bytes,
                      .params = at,
                      .params_bytes = sizeof(Params)});
  }
  void zero(void* to, std::size_t bytes) { add(Memset{.to = to, .value = 0, .bytes = bytes}); }
  void copy(void* to, const void* from, std::size_t bytes) {
    add(Copy{.to = to, .from = from, .bytes = bytes});
  }

  // False if a plan asked for more than there is room for, or gave a kernel another's parameters.
  bool valid() const { return !overflow_; }
  std::span<const Step> steps() const { return {steps_.data(), count_}; }

 private:
  template <class T>
  T& add(const T& step) {
    overflow_ |= count_ == kMaxSteps;
    Step& slot = steps_[count_ == kMaxSteps ? 0 : count_++];
    return slot.emplace<T>(step);
  }

  std::array<Step, kMaxSteps> steps_;
  std::size_t count_ = 0;
  alignas(std::max_align_t) std::array<std::byte, kParamBytes> params_;
  std::size_t params_used_ = 0;
  bool overflow_ = false;
};

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_PROGRAM_H_
