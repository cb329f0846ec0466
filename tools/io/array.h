// A dense tensor in host memory, as the file readers hand it out, and what each element type is
// called in each file format.
#ifndef STROBE_TOOLS_IO_ARRAY_H_
#define STROBE_TOOLS_IO_ARRAY_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <strobe/strobe.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace strobe::tools {

static_assert(std::endian::native == std::endian::little,
              ".npy and .safetensors data is little-endian and read as it stands");

enum class Element { f32, f64, f16, bf16, f8e4m3, f8e5m2, boolean, u8, i32, i64 };

struct ElementInfo {
  Element element;
  std::size_t bytes;
  const char* name;         // for people
  const char* npy;          // without the byte order character; nullptr: .npy cannot hold it
  const char* safetensors;  // as in its header
  DType dtype;              // DType::none where Strobe computes on no such tensor
};

// One row per element type, in the order of the enum.
std::span<const ElementInfo> element_table();
const ElementInfo& info(Element element);
std::optional<Element> element_of(DType dtype);

// Bytes of a tensor, or nothing where a dimension is negative or the product does not fit size_t.
std::optional<std::size_t> tensor_bytes(Element element, std::span<const std::int64_t> shape);

std::string shape_text(std::span<const std::int64_t> shape);  // "[2, 3, 4]"

// Memory whose start is aligned to kAlignment bytes, as Problem.alignment_bytes may promise.
template <class T>
struct AlignedAllocator {
  static constexpr std::align_val_t kAlignment{64};
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) {
    if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(::operator new(n * sizeof(T), kAlignment));
  }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kAlignment); }
  bool operator==(const AlignedAllocator&) const { return true; }
};
using Bytes = std::vector<std::byte, AlignedAllocator<std::byte>>;

// Row-major (the last dimension is contiguous).
struct Array {
  Element element = Element::f32;
  std::vector<std::int64_t> shape;
  Bytes data;  // tensor_bytes(element, shape)

  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }
};

// An array of zeros; the shape must be one that tensor_bytes accepts.
Array make_array(Element element, std::vector<std::int64_t> shape);

// What is wrong with a file.
struct FileError {
  std::string file;
  std::uint64_t offset = 0;  // byte at which reading stopped
  std::string problem;
  std::string remedy;

  std::string message() const;  // all four in one line
};

// A value, or the error that says why there is none.
template <class T>
class [[nodiscard]] FileResult {
 public:
  FileResult(T value) : state_(std::move(value)) {}
  FileResult(FileError error) : state_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(state_); }
  T& operator*() { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const FileError& error() const { return std::get<FileError>(state_); }

 private:
  std::variant<T, FileError> state_;
};

// The whole of a regular file. Readers copy what they need out of it, so the peak is twice the
// file.
FileResult<Bytes> read_file(const std::string& path);

// Writes the pieces one after the other, replacing the file.
std::optional<FileError> write_file(const std::string& path,
                                    std::span<const std::span<const std::byte>> pieces);

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_IO_ARRAY_H_
