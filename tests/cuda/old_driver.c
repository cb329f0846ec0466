// A driver as old as CUDA 11.4, for the tests: it says so, and can do nothing.
int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
