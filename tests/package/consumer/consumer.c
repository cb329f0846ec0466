/* One query over two equal keys: the output is the mean of the two values. */
#include <stdio.h>
#include <stdlib.h>
#include <strobe/strobe.h>

int main(void) {
  strobe_problem problem;
  strobe_plan* plan = NULL;
  strobe_run_args args;
  strobe_status status;
  const float q[2] = {1, 2}, k[4] = {1, 1, 1, 1}, v[4] = {0, 2, 2, 4};
  float o[2] = {0, 0};
  void* workspace;
  size_t bytes;

  strobe_problem_init(&problem);
  problem.seqlen_q = 1;
  problem.seqlen_k = 2;
  problem.head_dim = 2;
  problem.alignment_bytes = 4;
  if (strobe_plan_create(&problem, NULL, &plan, &status) != STROBE_OK) {
    fprintf(stderr, "%s: %s\n", status.argument, status.message);
    return 1;
  }
  bytes = strobe_plan_workspace_bytes(plan);
  workspace = aligned_alloc(256, bytes ? bytes : 256);
  strobe_run_args_init(&args);
  args.q = q;
  args.k = k;
  args.v = v;
  args.o = o;
  args.workspace = workspace;
  args.workspace_bytes = bytes;
  if (strobe_plan_run(plan, &args, NULL, &status) != STROBE_OK) {
    fprintf(stderr, "%s: %s\n", status.argument, status.message);
    return 1;
  }
  strobe_plan_destroy(plan);
  free(workspace);
  printf("strobe %s: %g %g\n", strobe_version(), o[0], o[1]);
  return o[0] == 1 && o[1] == 3 ? 0 : 1;
}
