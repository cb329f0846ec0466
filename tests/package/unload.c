/* Loads libstrobe, runs attention on several threads, unloads it; again and again. After each
 * unloading the process has the one thread it started with. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <strobe/strobe.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kHeads = 4, kLength = 128, kDim = 64, kElements = kHeads * kLength * kDim, kThreads = 3 };

static int threads_now(void) {
  int count = 0;
  struct dirent* entry;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return -1;
  while ((entry = readdir(tasks))) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

#define LOAD(name) __typeof__(&name) load_##name = (__typeof__(&name))dlsym(library, #name)

/* Returns the number of threads seen after the run, or -1. */
static int run_once(void* library, const float* in, float* out) {
  LOAD(strobe_problem_init);
  LOAD(strobe_plan_options_init);
  LOAD(strobe_plan_create);
  LOAD(strobe_plan_workspace_bytes);
  LOAD(strobe_run_args_init);
  LOAD(strobe_plan_run);
  LOAD(strobe_plan_destroy);
  strobe_problem problem;
  strobe_plan_options options;
  strobe_plan* plan = NULL;
  strobe_run_args args;
  strobe_status status;
  int result;

  load_strobe_problem_init(&problem);
  problem.heads = kHeads;
  problem.seqlen_q = problem.seqlen_k = kLength;
  problem.head_dim = kDim;
  load_strobe_plan_options_init(&options);
  options.threads = kThreads;
  if (load_strobe_plan_create(&problem, &options, &plan, &status) != STROBE_OK) {
    fprintf(stderr, "%s\n", status.message);
    return -1;
  }
  load_strobe_run_args_init(&args);
  args.q = args.k = args.v = in;
  args.o = out;
  args.workspace_bytes = load_strobe_plan_workspace_bytes(plan);
  args.workspace = args.workspace_bytes ? aligned_alloc(256, args.workspace_bytes) : NULL;
  if (load_strobe_plan_run(plan, &args, NULL, &status) != STROBE_OK) {
    fprintf(stderr, "%s\n", status.message);
    return -1;
  }
  result = threads_now();
  load_strobe_plan_destroy(plan);
  free(args.workspace);
  return result;
}

int main(int argc, char** argv) {
  float* in = aligned_alloc(256, kElements * sizeof(float));
  float* out = aligned_alloc(256, kElements * sizeof(float));
  int i, tries, before, during, after;
  pid_t child;
  int status;
  if (argc != 2 || !in || !out) return 1;
  for (i = 0; i < kElements; ++i) in[i] = (float)(i % 7);
  for (i = 0; i < 20; ++i) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    before = threads_now();
    during = run_once(library, in, out);
    dlclose(library);
    /* A joined thread may still be listed for a moment. */
    for (tries = 0; (after = threads_now()) != before && tries < 1000; ++tries) usleep(1000);
    /* Nothing of the library may be left to run at fork(). */
    child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      fprintf(stderr, "fork() after unloading failed\n");
      return 1;
    }
    if (during <= before || after != before) {
      fprintf(stderr, "threads: %d before, %d during, %d after\n", before, during, after);
      return 1;
    }
  }
  free(in);
  free(out);
  return 0;
}
