/* Causal grouped-query attention through the C ABI: the twin of attention.cpp. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strobe/strobe.h>

enum { kSeqlen = 512, kHeads = 8, kKvHeads = 2, kHeadDim = 64 };

/* [batch, seqlen, heads, head_dim]: the default layout. Static: zeroed, and off the stack. */
static _Alignas(64) float q[kSeqlen * kHeads * kHeadDim], o[kSeqlen * kHeads * kHeadDim];
static _Alignas(64) float k[kSeqlen * kKvHeads * kHeadDim], v[kSeqlen * kKvHeads * kHeadDim];
static float lse[kHeads * kSeqlen];

static int fail(const strobe_status* status) {
  fprintf(stderr, "%s: %s\n", status->argument, status->message);
  return EXIT_FAILURE;
}

int main(void) {
  strobe_problem problem;
  strobe_problem_init(&problem);
  problem.heads = kHeads;
  problem.kv_heads = kKvHeads;
  problem.seqlen_q = problem.seqlen_k = kSeqlen;
  problem.head_dim = kHeadDim;
  problem.window_right = 0; /* causal */

  strobe_plan* plan;
  strobe_status status;
  if (strobe_plan_create(&problem, NULL, &plan, &status) != STROBE_OK) return fail(&status);

  for (size_t i = 0; i < sizeof q / sizeof *q; ++i) q[i] = sinf(0.37f * (float)i);
  for (size_t i = 0; i < sizeof k / sizeof *k; ++i) k[i] = cosf(0.53f * (float)i);
  for (size_t i = 0; i < sizeof v / sizeof *v; ++i) v[i] = sinf(0.71f * (float)i);

  strobe_run_args args;
  strobe_run_args_init(&args);
  args.q = q;
  args.k = k;
  args.v = v;
  args.o = o;
  args.lse = lse;
  args.workspace_bytes = strobe_plan_workspace_bytes(plan); /* 0 or a multiple of 256 */
  args.workspace = args.workspace_bytes ? aligned_alloc(256, args.workspace_bytes) : NULL;
  const strobe_code code = strobe_plan_run(plan, &args, NULL, &status);
  free(args.workspace);
  strobe_plan_destroy(plan);
  if (code != STROBE_OK) return fail(&status);

  double sum = 0;
  for (size_t i = 0; i < sizeof o / sizeof *o; ++i) sum += o[i];
  printf("sum of o = %.4f, lse of the last query = %.4f\n", sum, lse[kHeads * kSeqlen - 1]);
  /* Query 0 sees key 0 alone, so its output is that key's value. */
  return fabsf(o[1] - v[1]) < 1e-6f ? EXIT_SUCCESS : EXIT_FAILURE;
}
