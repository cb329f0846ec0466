// Sizes and strides of a case's tensors, and the random numbers of the harness.
#ifndef STROBE_TESTS_HARNESS_SHAPES_H_
#define STROBE_TESTS_HARNESS_SHAPES_H_

#include <cstdint>
#include <initializer_list>

#include "harness/harness.h"

namespace strobe::harness {

// splitmix64: the same numbers on every machine.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  double uniform();  // in [0, 1)
  double normal();   // N(0, 1)
  bool chance(double p) { return uniform() < p; }
  std::int64_t between(std::int64_t low, std::int64_t high);  // both included
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[between(0, static_cast<std::int64_t>(of.size()) - 1)];
  }

 private:
  std::uint64_t state_;
};

// A problem with its automatic fields resolved.
struct Dims {
  std::int64_t batch;           // first size of q, k, v ...: 1 for varlen
  std::int64_t rows_q, rows_k;  // second size
  std::int64_t heads, kv_heads, d, dv;
  std::int64_t group;  // query heads per KV head
  double scale;
  DType dtype, aux;  // aux: of lse, sinks, dbias ...

  explicit Dims(const Problem& problem);
};

// [batch, rows, heads, dim] in the problem's layout, or as its strides say.
Tensor make_tensor(const Case& c, DType dtype, const Strides& strides, std::int64_t rows,
                   std::int64_t heads, std::int64_t dim);
// [batch, heads, rows_q, 1].
Tensor make_lse(const Case& c, const Strides& strides);
// A bias or mask with the sizes and strides that t states.
Tensor make_score_tensor(const Case& c, const ScoreTensor& t);
// The index of element (sequence b, head h, i, j) in a bias, mask or dbias.
Index broadcast_index(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j);

// Calls use(index) for every element of a tensor of this size.
template <class Use>
void for_each(const Index& size, Use use) {
  Index at;
  for (at[0] = 0; at[0] < size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < size[2]; ++at[2]) {
        for (at[3] = 0; at[3] < size[3]; ++at[3]) use(at);
      }
    }
  }
}

}  // namespace strobe::harness

#endif  // STROBE_TESTS_HARNESS_SHAPES_H_
