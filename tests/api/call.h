// A problem with memory and valid arguments for one run.
#ifndef STROBE_TESTS_API_CALL_H_
#define STROBE_TESTS_API_CALL_H_

#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strobe::test {

struct Destroy {
  void operator()(strobe_plan* plan) const { strobe_plan_destroy(plan); }
};
using PlanPtr = std::unique_ptr<strobe_plan, Destroy>;

inline PlanPtr reference_plan(const strobe_problem& problem) {
  strobe_plan_options options;
  strobe_plan_options_init(&options);
  options.kernel = "reference";
  strobe_plan* plan = nullptr;
  strobe_status status;
  EXPECT_EQ(strobe_plan_create(&problem, &options, &plan, &status), STROBE_OK) << status.message;
  return PlanPtr(plan);
}

// Memory for every tensor of the small problems, 4 KiB each and 4 KiB aligned, all poison.
class Memory {
 public:
  static constexpr std::size_t kSlotBytes = 4096;
  static constexpr unsigned char kPoison = 0xAB;

  Memory() : storage_(kSlots * kSlotBytes + kSlotBytes, kPoison) {}

  template <class T = void>
  T* slot(int index) {
    const auto base = reinterpret_cast<std::uintptr_t>(storage_.data());
    const std::uintptr_t aligned = (base + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
    return reinterpret_cast<T*>(aligned + static_cast<std::size_t>(index) * kSlotBytes);
  }
  const std::vector<unsigned char>& bytes() const { return storage_; }

 private:
  static constexpr int kSlots = 32;
  std::vector<unsigned char> storage_;
};

// A problem with valid arguments.
struct Call {
  explicit Call(const strobe_problem& p) : problem(p) {
    strobe_run_args_init(&args);
    fill_inputs();
    fill_outputs();
    if (p.lengths == STROBE_VARLEN) {
      args.cu_seqlens_q = cu_q.data();
      args.cu_seqlens_k = cu_k.data();
    }
    if (p.lengths == STROBE_PADDED) args.seqlens_k = used_k.data();
  }
  Call(const Call&) = delete;

  void fill_inputs() {
    const strobe_problem& p = problem;
    if (p.op == STROBE_MERGE) {
      args.partial_o = partial_o.data();
      args.partial_lse = partial_lse.data();
    } else if (p.op != STROBE_KEEP_MASK) {
      args.q = memory.slot(0);
      args.k = memory.slot(1);
      if (p.op != STROBE_PROBS) args.v = memory.slot(2);
      if (p.op != STROBE_FORWARD) args.lse = memory.slot(4);
      if (p.bias.dtype != STROBE_NONE) args.bias = memory.slot(5);
      if (p.mask.dtype != STROBE_NONE) args.mask = memory.slot<std::uint8_t>(6);
      if (p.alibi != STROBE_ALIBI_NONE) args.alibi_slopes = memory.slot(7);
      if (p.sinks) args.sinks = memory.slot(8);
    }
    if (p.op == STROBE_BACKWARD) {
      args.o = memory.slot(3);
      args.dout = memory.slot(9);
    }
    if (p.op == STROBE_PROBS || p.op == STROBE_KEEP_MASK) args.rows = rows.data();
  }

  void fill_outputs() {
    switch (problem.op) {
      case STROBE_FORWARD:
      case STROBE_MERGE:
        args.o = memory.slot(3);
        args.lse = memory.slot(4);
        break;
      case STROBE_BACKWARD:
        args.dq = memory.slot(10);
        args.dk = memory.slot(11);
        args.dv = memory.slot(12);
        break;
      case STROBE_PROBS:
        args.probs = memory.slot(13);
        break;
      case STROBE_KEEP_MASK:
        args.keep_mask = memory.slot<std::uint8_t>(14);
        break;
    }
  }

  strobe_problem problem;
  Memory memory;
  strobe_run_args args;
  void* stream = nullptr;
  std::vector<std::int32_t> cu_q = {0, 3, 6}, cu_k = {0, 5, 8}, used_q = {2, 3}, used_k = {5, 0};
  std::vector<std::int64_t> rows = {0, 2};
  std::array<const void*, 2> partial_o = {memory.slot(15), memory.slot(16)};
  std::array<const void*, 2> partial_lse = {memory.slot(17), memory.slot(18)};
  std::array<std::uint64_t, 2> dropout_state = {5, 6};
};

}  // namespace strobe::test

#endif  // STROBE_TESTS_API_CALL_H_
