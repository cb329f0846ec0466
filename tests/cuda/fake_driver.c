// A driver without a GPU, for tests of what the executor asks of it. One device of compute
// capability 9.0; the primary context is 1, others are made by streams: stream S belongs to context
// S / 100. It keeps a log of the calls that matter, which fake_log() gives and forgets.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long Pointer;

static char text[8192];
static int supported_version = 13000;
static size_t stack[16];  // contexts
static int depth;

static void note(const char* format, ...) {
  const size_t used = strlen(text);
  va_list values;
  va_start(values, format);
  vsnprintf(text + used, sizeof(text) - used, format, values);
  va_end(values);
}

#define EXPORT __attribute__((visibility("default")))

// For the tests.
EXPORT void fake_log(char* to) {  // of at least 8192 bytes
  memcpy(to, text, sizeof(text));
  text[0] = 0;
}
EXPORT void fake_set_version(int version) { supported_version = version; }
EXPORT int fake_depth(void) { return depth; }

EXPORT int cuInit(unsigned flags) { return (int)flags; }
EXPORT int cuDriverGetVersion(int* version) { return *version = supported_version, 0; }
EXPORT int cuGetErrorName(int error, const char** name) { return *name = "FAKE_ERROR", error * 0; }
EXPORT int cuGetErrorString(int error, const char** name) { return *name = "fake", error * 0; }
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int index) { return *device = index, 0; }
EXPORT int cuDeviceGetName(char* name, int size, int device) {
  return snprintf(name, (size_t)size, "Fake GPU %d", device), 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = 1u << 30, device; }
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448 : 1000;
  return device;
}
EXPORT int cuDevicePrimaryCtxRetain(size_t* context, int device) { return *context = 1, device; }
EXPORT int cuCtxPushCurrent_v2(size_t context) { return stack[depth++] = context, 0; }
EXPORT int cuCtxPopCurrent_v2(size_t* context) { return *context = stack[--depth], 0; }
EXPORT int cuCtxGetCurrent(size_t* context) { return *context = depth ? stack[depth - 1] : 0, 0; }
EXPORT int cuCtxGetDevice(int* device) { return *device = stack[depth - 1] == 9, 0; }  // 9: another
EXPORT int cuStreamGetCtx(size_t stream, size_t* context) { return *context = stream / 100, 0; }
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  static int current;
  const int before = current;
  current = *mode;
  *mode = before;
  return 0;
}
EXPORT int cuLibraryLoadData(size_t* library, const void* image, void* o, void* v, unsigned n,
                             void* p, void* q, unsigned m) {
  (void)o, (void)v, (void)n, (void)p, (void)q, (void)m;
  const int elf = memcmp(image, "\177ELF", 4) == 0;
  if (supported_version < 13000) return elf ? 209 : 222;
  note("load %s;", elf ? "cubin" : "text");
  return *library = 5, 0;
}
EXPORT int cuLibraryUnload(size_t library) { return (int)library * 0; }
EXPORT int cuLibraryGetKernel(size_t* kernel, size_t library, const char* name) {
  note("kernel %s;", name);
  return *kernel = library + 1, 0;
}
EXPORT int cuKernelGetFunction(size_t* function, size_t kernel) {
  note("function in %zu;", stack[depth - 1]);
  return *function = kernel + 1, 0;
}
EXPORT int cuFuncLoad(size_t function) { return (int)function * 0; }
EXPORT int cuKernelGetAttribute(int* value, int attribute, size_t kernel, int device) {
  return *value = attribute == 4 ? 64 : 0, (int)kernel * 0 + device;
}
EXPORT int cuKernelSetAttribute(int attribute, int value, size_t kernel, int device) {
  note("attribute %d = %d;", attribute, value);
  return (int)kernel * 0 + device;
}
struct Config {
  unsigned grid[3], block[3], shared;
  size_t stream;
  const struct {
    int id;
    char padding[4];
    unsigned value[16];
  } * attributes;
  unsigned count;
};
EXPORT int cuLaunchKernelEx(const struct Config* c, size_t kernel, void** params, void** extra) {
  note("launch %zu grid %u %u %u block %u %u %u shared %u stream %zu param %d", kernel, c->grid[0],
       c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream,
       *(int*)params[0]);
  for (unsigned i = 0; i < c->count; ++i) {
    note(" %d: %u", c->attributes[i].id, c->attributes[i].value[0]);
  }
  note(" in %zu;", stack[depth - 1]);
  return c->grid[0] == 13 ? 1 : extra != NULL;
}
EXPORT int cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, size_t stream) {
  note("set %llu %u %zu stream %zu;", to, value, bytes, stream);
  return 0;
}
EXPORT int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, size_t stream) {
  note("copy %llu %llu %zu stream %zu;", to, from, bytes, stream);
  return 0;
}
EXPORT int cuPointerGetAttribute(void* value, int attribute, Pointer pointer) {
  return (void)value, (void)attribute, (void)pointer, 1;
}
