// The five operations of strobe.h. Each allocates all it needs before it writes anything, and
// throws std::bad_alloc where it cannot.
#ifndef STROBE_SRC_REFERENCE_PASSES_H_
#define STROBE_SRC_REFERENCE_PASSES_H_

#include <strobe/strobe.h>

namespace strobe::reference {

void forward(const strobe_problem& problem, const strobe_run_args& args);
void backward(const strobe_problem& problem, const strobe_run_args& args);
void merge(const strobe_problem& problem, const strobe_run_args& args);
void probs(const strobe_problem& problem, const strobe_run_args& args);
void keep_mask(const strobe_problem& problem, const strobe_run_args& args);

}  // namespace strobe::reference

#endif  // STROBE_SRC_REFERENCE_PASSES_H_
