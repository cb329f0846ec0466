// Preloaded before libstrobe: the first run of the process that writes O gets one element of it
// wrong.
#include <dlfcn.h>
#include <strobe/strobe.h>

#include <atomic>

extern "C" __attribute__((visibility("default"))) strobe_code strobe_plan_run(
    const strobe_plan* plan, const strobe_run_args* args, void* stream, strobe_status* status) {
  using Run = decltype(&strobe_plan_run);
  static const auto real = reinterpret_cast<Run>(dlsym(RTLD_NEXT, "strobe_plan_run"));
  static std::atomic<bool> done = false;
  const strobe_code code = real(plan, args, stream, status);
  if (code == STROBE_OK && args->o && !done.exchange(true))
    static_cast<float*>(args->o)[0] += 0.25f;
  return code;
}
