#include "io/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

namespace strobe::tools {
namespace {

constexpr std::array<ElementInfo, 10> kElements = {{
    {Element::f32, 4, "float32", "f4", "F32", DType::f32},
    {Element::f64, 8, "float64", "f8", "F64", DType::f64},
    {Element::f16, 2, "float16", "f2", "F16", DType::f16},
    {Element::bf16, 2, "bfloat16", "V2", "BF16", DType::bf16},  // numpy has no bfloat16 of its own
    {Element::f8e4m3, 1, "float8_e4m3", nullptr, "F8_E4M3", DType::f8e4m3},
    {Element::f8e5m2, 1, "float8_e5m2", nullptr, "F8_E5M2", DType::f8e5m2},
    {Element::boolean, 1, "bool", "b1", "BOOL", DType::boolean},
    {Element::u8, 1, "uint8", "u1", "U8", DType::none},
    {Element::i32, 4, "int32", "i4", "I32", DType::none},
    {Element::i64, 8, "int64", "i8", "I64", DType::none},
}};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string errno_text() { return std::generic_category().message(errno); }

}  // namespace

std::span<const ElementInfo> element_table() { return kElements; }

const ElementInfo& info(Element element) { return kElements[static_cast<std::size_t>(element)]; }

std::optional<Element> element_of(DType dtype) {
  for (const ElementInfo& row : kElements) {
    if (row.dtype == dtype && dtype != DType::none) return row.element;
  }
  return std::nullopt;
}

std::optional<std::size_t> tensor_bytes(Element element, std::span<const std::int64_t> shape) {
  // A tensor with an empty dimension holds nothing, however large the others are.
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty |= size == 0;
  }
  if (empty) return 0;
  std::size_t bytes = info(element).bytes;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Array make_array(Element element, std::vector<std::int64_t> shape) {
  Array array{element, std::move(shape), {}};
  array.data.resize(tensor_bytes(element, array.shape).value());
  return array;
}

std::string FileError::message() const {
  return fmt::format("{}: {} (at byte {}). {}", file, problem, offset, remedy);
}

FileResult<Bytes> read_file(const std::string& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::not_found) {
    return FileError{path, 0, "no such file", "Check the path."};
  }
  if (!std::filesystem::is_regular_file(status)) {
    return FileError{path, 0, "not a regular file",
                     "Give the path of a file, not of a directory or pipe."};
  }
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return FileError{path, 0, errno_text(), "Check that it may be read."};

  const std::uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return FileError{path, 0, code.message(), "Check that it may be read."};
  Bytes bytes;
  try {
    bytes.resize(size);
  } catch (const std::exception&) {
    return FileError{path, 0, fmt::format("its {} bytes do not fit into memory", size),
                     "Split the problem by batch or head."};
  }
  const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  if (got != bytes.size()) {
    return FileError{path, got, "the file ended or failed while it was read",
                     "Check that nothing else writes to it."};
  }
  return bytes;
}

std::optional<FileError> write_file(const std::string& path,
                                    std::span<const std::span<const std::byte>> pieces) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file)
    return FileError{path, 0, errno_text(), "Check that its folder exists and may be written."};
  std::uint64_t written = 0;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;  // fwrite takes no null pointer, not even for nothing
    const std::size_t count = std::fwrite(piece.data(), 1, piece.size(), file.get());
    written += count;
    if (count != piece.size())
      return FileError{path, written, errno_text(), "Check the free space."};
  }
  // The last bytes may still be in the buffer: a full disk shows here.
  if (std::fclose(file.release()) != 0) {
    return FileError{path, written, errno_text(), "Check the free space."};
  }
  return std::nullopt;
}

}  // namespace strobe::tools
