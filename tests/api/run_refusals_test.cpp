// Every refusal of the arguments of a run: it names the argument, value and remedy, and nothing is
// written.
#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "call.h"
#include "problems.h"

namespace strobe::test {
namespace {

strobe_problem with_everything(strobe_op op) {
  strobe_problem p = dense_problem(op);
  p.bias.dtype = STROBE_F32;
  p.mask.dtype = STROBE_BOOL;
  p.alibi = STROBE_ALIBI_PER_BATCH_HEAD;
  p.sinks = 1;
  p.dropout_p = 0.5;
  return p;
}

struct Refusal {
  std::string name;
  strobe_problem problem;
  std::function<void(Call&)> change;
  const char* argument;
  std::vector<std::string> words;
};

std::vector<Refusal> missing() {
  const strobe_problem forward = with_everything(STROBE_FORWARD);
  const strobe_problem backward = with_everything(STROBE_BACKWARD);
  const strobe_problem merge = dense_problem(STROBE_MERGE);
  const strobe_problem probs = dense_problem(STROBE_PROBS);
  const strobe_problem keep = dense_problem(STROBE_KEEP_MASK);
  const strobe_problem varlen = varlen_problem();
  return {
      {"q", forward, [](Call& r) { r.args.q = nullptr; }, "q", {"NULL", "reads its 192", "Pass"}},
      {"k", forward, [](Call& r) { r.args.k = nullptr; }, "k", {"NULL", "reads its 160", "Pass"}},
      {"v", forward, [](Call& r) { r.args.v = nullptr; }, "v", {"NULL", "STROBE_FORWARD"}},
      {"o", forward, [](Call& r) { r.args.o = nullptr; }, "o", {"NULL", "writes its 192"}},
      {"bias", forward, [](Call& r) { r.args.bias = nullptr; }, "bias", {"NULL", "120"}},
      {"mask", forward, [](Call& r) { r.args.mask = nullptr; }, "mask", {"NULL", "120"}},
      {"slopes", forward, [](Call& r) { r.args.alibi_slopes = nullptr; }, "alibi_slopes", {"8"}},
      {"sinks", forward, [](Call& r) { r.args.sinks = nullptr; }, "sinks", {"NULL", "4"}},
      {"backward_o", backward, [](Call& r) { r.args.o = nullptr; }, "o", {"reads", "BACKWARD"}},
      {"backward_lse", backward, [](Call& r) { r.args.lse = nullptr; }, "lse", {"reads its 24"}},
      {"dout", backward, [](Call& r) { r.args.dout = nullptr; }, "dout", {"NULL"}},
      {"dq", backward, [](Call& r) { r.args.dq = nullptr; }, "dq", {"NULL", "writes"}},
      {"dk", backward, [](Call& r) { r.args.dk = nullptr; }, "dk", {"NULL", "writes"}},
      {"dv", backward, [](Call& r) { r.args.dv = nullptr; }, "dv", {"NULL", "writes"}},
      {"merge_o", merge, [](Call& r) { r.args.o = nullptr; }, "o", {"NULL", "STROBE_MERGE"}},
      {"partial_o",
       merge,
       [](Call& r) { r.args.partial_o = nullptr; },
       "partial_o",
       {"NULL", "2 pointers", "host array"}},
      {"partial_lse",
       merge,
       [](Call& r) { r.args.partial_lse = nullptr; },
       "partial_lse",
       {"NULL", "2 pointers"}},
      {"partial_o_1", merge, [](Call& r) { r.partial_o[1] = nullptr; }, "partial_o[1]", {"NULL"}},
      {"partial_lse_0",
       merge,
       [](Call& r) { r.partial_lse[0] = nullptr; },
       "partial_lse[0]",
       {"NULL"}},
      {"probs", probs, [](Call& r) { r.args.probs = nullptr; }, "probs", {"writes its 80"}},
      {"probs_lse", probs, [](Call& r) { r.args.lse = nullptr; }, "lse", {"STROBE_PROBS reads"}},
      {"rows", probs, [](Call& r) { r.args.rows = nullptr; }, "rows", {"reads its 2"}},
      {"keep_mask", keep, [](Call& r) { r.args.keep_mask = nullptr; }, "keep_mask", {"80"}},
      {"cu_seqlens_q",
       varlen,
       [](Call& r) { r.args.cu_seqlens_q = nullptr; },
       "cu_seqlens_q",
       {"NULL", "reads its 3"}},
      {"cu_seqlens_k",
       varlen,
       [](Call& r) { r.args.cu_seqlens_k = nullptr; },
       "cu_seqlens_k",
       {"NULL", "reads its 3"}},
      {"seqlens",
       padded_problem(),
       [](Call& r) { r.args.seqlens_k = nullptr; },
       "seqlens_k",
       {"NULL", "seqlens_q", "STROBE_DENSE"}},
  };
}

std::vector<Refusal> unused() {
  const strobe_problem p = dense_problem(), backward = dense_problem(STROBE_BACKWARD);
  return {
      {"dq", p, [](Call& r) { r.args.dq = r.memory.slot(10); }, "dq", {"STROBE_BACKWARD", "NULL"}},
      {"dk", p, [](Call& r) { r.args.dk = r.memory.slot(10); }, "dk", {"STROBE_BACKWARD"}},
      {"dv", p, [](Call& r) { r.args.dv = r.memory.slot(10); }, "dv", {"STROBE_BACKWARD"}},
      {"dbias",
       backward,
       [](Call& r) { r.args.dbias = r.memory.slot(19); },
       "dbias",
       {"not NULL", "a bias", "Pass NULL"}},
      {"dsinks",
       backward,
       [](Call& r) { r.args.dsinks = r.memory.slot(19); },
       "dsinks",
       {"sinks = 1", "Pass NULL"}},
      {"probs", p, [](Call& r) { r.args.probs = r.memory.slot(13); }, "probs", {"STROBE_PROBS"}},
      {"keep_mask",
       p,
       [](Call& r) { r.args.keep_mask = r.memory.slot<std::uint8_t>(14); },
       "keep_mask",
       {"STROBE_KEEP_MASK"}},
      {"partial_o",
       p,
       [](Call& r) { r.args.partial_o = r.partial_o.data(); },
       "partial_o",
       {"STROBE_MERGE"}},
      {"partial_lse",
       p,
       [](Call& r) { r.args.partial_lse = r.partial_o.data(); },
       "partial_lse",
       {"STROBE_MERGE"}},
      {"bias",
       p,
       [](Call& r) { r.args.bias = r.memory.slot(5); },
       "bias",
       {"bias.dtype is STROBE_NONE", "set that in the problem"}},
      {"mask",
       p,
       [](Call& r) { r.args.mask = r.memory.slot<std::uint8_t>(6); },
       "mask",
       {"mask.dtype is STROBE_NONE"}},
      {"slopes",
       p,
       [](Call& r) { r.args.alibi_slopes = r.memory.slot(7); },
       "alibi_slopes",
       {"STROBE_ALIBI_NONE"}},
      {"sinks", p, [](Call& r) { r.args.sinks = r.memory.slot(8); }, "sinks", {"sinks = 1"}},
      {"seqlens_q",
       p,
       [](Call& r) { r.args.seqlens_q = r.used_q.data(); },
       "seqlens_q",
       {"STROBE_PADDED"}},
      {"seqlens_k",
       p,
       [](Call& r) { r.args.seqlens_k = r.used_k.data(); },
       "seqlens_k",
       {"STROBE_PADDED"}},
      {"cu_seqlens_q",
       padded_problem(),
       [](Call& r) { r.args.cu_seqlens_q = r.cu_q.data(); },
       "cu_seqlens_q",
       {"STROBE_VARLEN"}},
      {"cu_seqlens_k",
       p,
       [](Call& r) { r.args.cu_seqlens_k = r.cu_k.data(); },
       "cu_seqlens_k",
       {"STROBE_VARLEN"}},
  };
}

template <class T>
T* shifted(T* pointer, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) +
                              static_cast<std::uintptr_t>(bytes));
}

std::vector<Refusal> misplaced() {
  const strobe_problem p = with_everything(STROBE_FORWARD);
  const strobe_problem backward = with_everything(STROBE_BACKWARD);
  strobe_problem byte_aligned = dense_problem();
  byte_aligned.alignment_bytes = 1;
  return {
      {"q",
       p,
       [](Call& r) { r.args.q = shifted(r.args.q, 8); },
       "q",
       {"0x", "008", "multiple of 16", "smaller alignment_bytes"}},
      {"o", p, [](Call& r) { r.args.o = shifted(r.args.o, 4); }, "o", {"multiple of 16"}},
      {"dv", backward, [](Call& r) { r.args.dv = shifted(r.args.dv, 4); }, "dv", {"of 16"}},
      {"q_element",
       byte_aligned,
       [](Call& r) { r.args.q = shifted(r.args.q, 1); },
       "q",
       {"multiple of 4", "element size"}},
      {"lse", p, [](Call& r) { r.args.lse = shifted(r.args.lse, 2); }, "lse", {"multiple of 4"}},
      {"bias", p, [](Call& r) { r.args.bias = shifted(r.args.bias, 1); }, "bias", {"of 4"}},
      {"sinks", p, [](Call& r) { r.args.sinks = shifted(r.args.sinks, 2); }, "sinks", {"of 4"}},
      {"dropout_state",
       p,
       [](Call& r) { r.args.dropout_state = shifted(r.dropout_state.data(), 4); },
       "dropout_state",
       {"multiple of 8"}},
      {"cu_seqlens",
       varlen_problem(),
       [](Call& r) { r.args.cu_seqlens_q = shifted(r.args.cu_seqlens_q, 2); },
       "cu_seqlens_q",
       {"multiple of 4"}},
      {"rows",
       dense_problem(STROBE_PROBS),
       [](Call& r) { r.args.rows = shifted(r.args.rows, 4); },
       "rows",
       {"multiple of 8"}},
      {"partial",
       dense_problem(STROBE_MERGE),
       [](Call& r) { r.partial_o[1] = shifted(r.partial_o[1], 8); },
       "partial_o[1]",
       {"of 16"}},
      {"o_on_q",
       p,
       [](Call& r) { r.args.q = r.args.o; },
       "o",
       {"shares memory with q at 0x", "separate memory"}},
      {"o_end_on_k", p, [](Call& r) { r.args.k = shifted(r.args.o, 752); }, "o", {"with k"}},
      {"o_on_lse", p, [](Call& r) { r.args.lse = shifted(r.args.o, 764); }, "o", {"with lse"}},
      {"o_on_mask",
       p,
       [](Call& r) { r.args.mask = static_cast<std::uint8_t*>(r.args.o); },
       "o",
       {"with mask"}},
      {"dq_on_dk", backward, [](Call& r) { r.args.dk = r.args.dq; }, "dq", {"with dk"}},
      {"dq_on_dout",
       backward,
       [](Call& r) { r.args.dq = const_cast<void*>(r.args.dout); },
       "dq",
       {"with dout"}},
      {"dbias_on_bias",
       backward,
       [](Call& r) { r.args.dbias = const_cast<void*>(r.args.bias); },
       "dbias",
       {"with bias"}},
      {"dsinks_on_dv", backward, [](Call& r) { r.args.dsinks = r.args.dv; }, "dv", {"with dsinks"}},
      {"o_on_partial",
       dense_problem(STROBE_MERGE),
       [](Call& r) { r.partial_o[1] = r.args.o; },
       "o",
       {"with partial_o[1]"}},
      {"lse_on_partial",
       dense_problem(STROBE_MERGE),
       [](Call& r) { r.partial_lse[0] = r.args.lse; },
       "lse",
       {"with partial_lse[0]"}},
  };
}

std::vector<Refusal> lengths() {
  const strobe_problem v = varlen_problem(), padded = padded_problem();
  return {
      {"start", v, [](Call& r) { r.cu_q[0] = 1; }, "cu_seqlens_q", {"[0] is 1", "row 0", "Pass"}},
      {"negative", v, [](Call& r) { r.cu_k[0] = -1; }, "cu_seqlens_k", {"[0] is -1"}},
      {"decreasing",
       v,
       [](Call& r) {
         r.cu_q = {0, 4, 2};
         r.problem.seqlen_q = 0;
       },
       "cu_seqlens_q",
       {"[2] is 2", "element 1", "larger, 4", "never decrease"}},
      {"extreme",
       v,
       [](Call& r) {
         r.cu_q = {0, INT32_MAX, INT32_MIN};
         r.problem.seqlen_q = 0;
       },
       "cu_seqlens_q",
       {"[2] is -2147483648", "2147483647"}},
      {"bound",
       v,
       [](Call& r) {
         r.cu_q = {0, 4, 6};
       },
       "cu_seqlens_q",
       {"[1] is 4", "sequence 0", "4 rows", "seqlen_q, 3", "0 for unknown"}},
      {"bound_k",
       v,
       [](Call& r) {
         r.cu_k = {0, 1, 7};
       },
       "cu_seqlens_k",
       {"[2] is 7", "sequence 1", "6 rows", "seqlen_k, 5"}},
      {"total",
       v,
       [](Call& r) {
         r.cu_k = {0, 5, 10};
       },
       "cu_seqlens_k",
       {"[2] is 10", "total_k is 9", "Plan with"}},
      {"varlen_used",
       v,
       [](Call& r) {
         r.used_k = {5, 4};
         r.args.seqlens_k = r.used_k.data();
       },
       "seqlens_k",
       {"[1] is 4", "sequence 1", "0 to 3 rows"}},
      {"padded_long",
       padded,
       [](Call& r) { r.used_k[1] = 6; },
       "seqlens_k",
       {"[1] is 6", "sequence 1", "0 to 5 rows", "rows in use"}},
      {"padded_negative", padded, [](Call& r) { r.used_k[0] = -1; }, "seqlens_k", {"[0] is -1"}},
      {"padded_q",
       padded,
       [](Call& r) {
         r.used_q[0] = 4;
         r.args.seqlens_q = r.used_q.data();
       },
       "seqlens_q",
       {"[0] is 4", "0 to 3 rows"}},
      {"rows",
       dense_problem(STROBE_PROBS),
       [](Call& r) { r.rows[1] = 3; },
       "rows",
       {"[1] is 3", "seqlen_q is 3", "seqlen_q - 1"}},
      {"rows_negative",
       dense_problem(STROBE_KEEP_MASK),
       [](Call& r) { r.rows[0] = -1; },
       "rows",
       {"[0] is -1"}},
      {"rows_varlen",
       varlen_problem(STROBE_PROBS),
       [](Call& r) { r.rows[0] = 6; },
       "rows",
       {"[0] is 6", "total_q is 6"}},
  };
}

std::vector<Refusal> other() {
  const strobe_problem p = dense_problem();
  return {
      {"reserved", p, [](Call& r) { r.args.reserved = 3; }, "reserved", {"3", "Pass 0"}},
      {"stream", p, [](Call& r) { r.stream = r.memory.slot(0); }, "stream", {"0x", "cpu", "NULL"}},
      {"struct_short", p, [](Call& r) { r.args.struct_size = 12; }, "struct_size", {"12", "_init"}},
      {"struct_none", p, [](Call& r) { r.args.struct_size = 0; }, "struct_size", {"0", "_init"}},
      {"struct_long",
       p,
       [](Call& r) { r.args.struct_size = sizeof(strobe_run_args) + 8; },
       "struct_size",
       {std::to_string(sizeof(strobe_run_args) + 8), "libstrobe"}},
      {"struct_q_only",
       p,
       [](Call& r) { r.args.struct_size = offsetof(strobe_run_args, k); },
       "k",
       {"NULL"}},
  };
}

class RunRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(RunRefusals, NameArgumentValueAndRemedyAndWriteNothing) {
  const Refusal& refusal = GetParam();
  Call call(refusal.problem);
  refusal.change(call);
  const PlanPtr plan = reference_plan(call.problem);
  ASSERT_NE(plan, nullptr);
  const std::vector<unsigned char> before = call.memory.bytes();
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(plan.get(), &call.args, call.stream, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, refusal.argument) << status.message;
  const std::string message = status.message;
  for (const std::string& word : refusal.words) {
    EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
  }
  EXPECT_EQ(message.rfind(refusal.argument, 0), 0u) << message;
  EXPECT_EQ(message.back(), '.') << message;
  EXPECT_EQ(call.memory.bytes(), before);
}

std::string name_of(const testing::TestParamInfo<Refusal>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Missing, RunRefusals, testing::ValuesIn(missing()), name_of);
INSTANTIATE_TEST_SUITE_P(Unused, RunRefusals, testing::ValuesIn(unused()), name_of);
INSTANTIATE_TEST_SUITE_P(Misplaced, RunRefusals, testing::ValuesIn(misplaced()), name_of);
INSTANTIATE_TEST_SUITE_P(Lengths, RunRefusals, testing::ValuesIn(lengths()), name_of);
INSTANTIATE_TEST_SUITE_P(Other, RunRefusals, testing::ValuesIn(other()), name_of);

// Without a change every case above must run, or its refusal would prove nothing.
TEST(RunArgs, UnchangedArgumentsRun) {
  for (const auto& list : {missing(), unused(), misplaced(), lengths(), other()}) {
    for (const Refusal& refusal : list) {
      Call call(refusal.problem);
      const PlanPtr plan = reference_plan(call.problem);
      ASSERT_NE(plan, nullptr);
      const std::vector<unsigned char> before = call.memory.bytes();
      strobe_status status;
      EXPECT_EQ(strobe_plan_run(plan.get(), &call.args, nullptr, &status), STROBE_OK)
          << refusal.name << ": " << status.message;
      EXPECT_NE(call.memory.bytes(), before) << refusal.name;
    }
  }
}

}  // namespace
}  // namespace strobe::test
