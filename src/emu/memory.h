// Device memory as a kernel may see it: the registered tensors and nothing
// else.
#ifndef STROBE_SRC_EMU_MEMORY_H_
#define STROBE_SRC_EMU_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/report.h"
#include "emu/shadow.h"

namespace strobe::emu {

enum class TensorKind {
  kInput,   // written by the host; a kernel that writes it is wrong
  kOutput,  // undefined until a kernel writes it
  kState,   // written by the host, read and written by kernels
};

struct Tensor {
  TensorTraffic traffic;  // name and counts
  char* base;
  std::uint64_t bytes;
  TensorKind kind;
  std::size_t number;  // among the tensors of a launch
  Shadow shadow;       // of outputs and state
  std::mutex mutex;
  // Clocks released at synchronisation words of this tensor, by address.
  std::unordered_map<std::uintptr_t, Clock> released;

  bool holds(std::uintptr_t address, std::uint64_t size) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    return address >= begin && size <= bytes && address - begin <= bytes - size;
  }
};

class Memory {
 public:
  // Tensors that overlap (slices of one packed tensor) become one.
  void add(const std::string& name, const void* base, std::uint64_t bytes, TensorKind kind);
  // The tensor that holds all `size` bytes at address, or null.
  Tensor* find(std::uintptr_t address, std::uint64_t size);
  // What lies nearest to an address that no tensor holds, for reports.
  std::string describe(std::uintptr_t address) const;
  // A memset in stream order: the host writes bytes of value 0.
  bool zero(void* base, std::uint64_t bytes);

  void begin_launch();
  void end_launch();
  void add_traffic(const std::vector<TensorTraffic>& traffic);  // by Tensor::number
  void add_traffic_to(Report& report) const;

 private:
  std::list<Tensor> tensors_;
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_MEMORY_H_
