// Standard attention, which stores the whole N x N matrix of scores: what the demo compares with.
#ifndef STROBE_EXAMPLES_DEMO_STANDARD_ATTENTION_H_
#define STROBE_EXAMPLES_DEMO_STANDARD_ATTENTION_H_

#include <cstdint>
#include <string>

namespace strobe::demo {

// Chooses who multiplies the matrices in child processes started from now on, and names it. Old
// OpenBLAS releases do not know new x86 processors and take SSE kernels ("Prescott") there; unless
// OPENBLAS_CORETYPE is set already, this sets it to kernels of the widest vectors the processor
// has.
std::string choose_gemm();

// o = softmax(q k^T / sqrt(dim)) v for one head: q, k, v, o [seqlen, dim]. S = q k^T is computed
// whole, as matrix products do, softmax overwrites it by P row by row, and o = P v. Causal: keys
// after the query get weight 0. `scores` holds [seqlen, seqlen]; P takes the place of S there.
void standard_attention(std::int64_t seqlen, std::int64_t dim, bool causal, int threads,
                        const float* q, const float* k, const float* v, float* scores, float* o);

}  // namespace strobe::demo

#endif  // STROBE_EXAMPLES_DEMO_STANDARD_ATTENTION_H_
