// Small valid problems, from which the tests of the API change one thing at a time.
#ifndef STROBE_TESTS_API_PROBLEMS_H_
#define STROBE_TESTS_API_PROBLEMS_H_

#include <strobe/strobe.h>

namespace strobe::test {

inline strobe_problem dense_problem(strobe_op op = STROBE_FORWARD) {
  strobe_problem p;
  strobe_problem_init(&p);
  p.op = op;
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.seqlen_q = 3;
  p.seqlen_k = 5;
  p.head_dim = 8;
  if (op == STROBE_MERGE) p.partials = 2;
  if (op == STROBE_PROBS || op == STROBE_KEEP_MASK) p.num_rows = 2;
  return p;
}

inline strobe_problem padded_problem(strobe_op op = STROBE_FORWARD) {
  strobe_problem p = dense_problem(op);
  p.lengths = STROBE_PADDED;
  return p;
}

inline strobe_problem varlen_problem(strobe_op op = STROBE_FORWARD) {
  strobe_problem p = dense_problem(op);
  p.lengths = STROBE_VARLEN;
  p.total_q = 6;
  p.total_k = 9;
  return p;
}

}  // namespace strobe::test

#endif  // STROBE_TESTS_API_PROBLEMS_H_
