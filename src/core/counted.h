// Float operations that the papers count separately from matrix products.
#ifndef STROBE_SRC_CORE_COUNTED_H_
#define STROBE_SRC_CORE_COUNTED_H_

namespace strobe::core {

enum class Op : int {
  kExp,      // exponentials on the special function unit
  kRescale,  // multiplications of an accumulator by a softmax factor
  kDivide,   // divisions and reciprocals
  kMax,      // comparisons for row maxima
  kSum,      // additions for row sums
  kScale,    // multiplications and subtractions of a score before its exponential
  kOther,    // softcap, ALiBi, bias, dropout, dS
  kCount
};

constexpr const char* kOpNames[] = {"exp", "rescale", "divide", "max", "sum", "scale", "other"};

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_COUNTED_H_
