// Device memory for the harness, by the driver's own functions, so that a case made on the host
// runs on a GPU: every buffer is copied there with its guard zones, and back after the run.
#ifndef STROBE_TESTS_HARNESS_CUDA_MEMORY_H_
#define STROBE_TESTS_HARNESS_CUDA_MEMORY_H_

#include <cstddef>
#include <string>
#include <vector>

namespace strobe::harness {

class CudaMemory {
 public:
  explicit CudaMemory(int device_index);
  ~CudaMemory();  // frees it all
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // Copies `bytes` bytes there, at the same distance from a multiple of 256.
  void add(void* host, std::size_t bytes);
  // Where a host pointer into an added range lies on the GPU; null for null and for any other.
  void* translate(const void* host) const;
  // Waits for the GPU and copies everything back.
  void read_back();

  // What failed first; empty: nothing.
  const std::string& fault() const { return fault_; }

 private:
  using Pointer = unsigned long long;
  struct Range {
    char* host;
    std::size_t bytes;
    Pointer allocation, begin;
  };
  template <class... Parameters, class... Values>
  bool call(const char* name, int (*)(Parameters...), Values... values);

  void* library_ = nullptr;
  int device_ = 0;
  std::vector<Range> ranges_;
  std::string fault_;
};

}  // namespace strobe::harness

#endif  // STROBE_TESTS_HARNESS_CUDA_MEMORY_H_
