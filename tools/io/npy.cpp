#include "io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace strobe::tools {
namespace {

// Layout: magic (6 bytes), version (2), header length (2 bytes in version 1, else 4), header, data.
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDims = 32;  // numpy's own limit
constexpr const char* kSaveAgain = "Save it again with numpy.save.";

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
// Python's own readers evaluate it; this parser takes just that dictionary: its three keys in any
// order, each once, a string, True or False, and a tuple of non-negative integers. It never reads
// past `text_`.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  // nullptr on success, else what is wrong at position().
  const char* parse(Header* header) {
    if (!take('{')) return "the header is not a dictionary";
    bool seen[3] = {};
    while (!take('}')) {
      std::string key;
      if (const char* wrong = string(&key)) return wrong;
      if (!take(':')) return "a ':' is missing in the header";
      const int field = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (field < 0) return "the header has an unknown key";
      if (std::exchange(seen[field], true)) return "the header has a key twice";
      const char* wrong = field == 0   ? descr(&header->descr)
                          : field == 1 ? boolean(&header->fortran_order)
                                       : shape(&header->shape);
      if (wrong) return wrong;
      if (!take(',') && !at('}')) return "a ',' is missing in the header";
    }
    skip_space();
    if (at_ != text_.size()) return "the header goes on after its dictionary";
    if (!seen[0] || !seen[1] || !seen[2]) return "the header lacks descr, fortran_order or shape";
    return nullptr;
  }

  std::size_t position() const { return at_; }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool at(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }

  bool take(char c) {
    if (!at(c)) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  const char* string(std::string* value) {
    const char quote = at('"') ? '"' : '\'';
    if (!take(quote)) return "a string is missing in the header";
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return "a string in the header does not end";
    *value = text_.substr(at_, end - at_);
    if (value->find('\\') != std::string::npos) return "a string in the header holds an escape";
    at_ = end + 1;
    return nullptr;
  }

  const char* descr(std::string* value) {
    if (at('[')) return "the array is structured (its descr is a list)";
    return string(value);
  }

  const char* boolean(bool* value) {
    *value = take_word("True");
    return *value || take_word("False") ? nullptr : "fortran_order is neither True nor False";
  }

  const char* shape(std::vector<std::int64_t>* dims) {
    if (!take('(')) return "the shape is not a tuple";
    while (!take(')')) {
      if (dims->size() == kMaxDims) return "the shape has more than 32 dimensions";
      skip_space();
      std::int64_t size = 0;
      const char* end = text_.data() + text_.size();
      const auto [stop, code] = std::from_chars(text_.data() + at_, end, size);
      if (code == std::errc::result_out_of_range) return "a dimension does not fit 64 bits";
      if (code != std::errc()) return "a dimension of the shape is not a number";
      if (size < 0) return "a dimension of the shape is negative";
      at_ = static_cast<std::size_t>(stop - text_.data());
      dims->push_back(size);
      // One dimension is "(3,)": without its comma it would be a number in brackets.
      if (!take(',') && (dims->size() == 1 || !at(')'))) return "a ',' is missing in the shape";
    }
    return nullptr;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// The element type of a descr such as "<f4" or "|b1", or what is wrong with it.
const char* parse_descr(const std::string& descr, Element* element) {
  if (!descr.empty() && descr[0] == '>') return "the data is big-endian";
  for (const ElementInfo& row : element_table()) {
    if (!row.npy || descr.size() != 3 || descr.compare(1, 2, row.npy) != 0) continue;
    const bool order_matters = row.bytes > 1 && row.element != Element::bf16;
    if (descr[0] != '<' && (order_matters || descr[0] != '|')) break;
    *element = row.element;
    return nullptr;
  }
  return "the element type is not supported";
}

// Column-major to row-major. `bytes` is the size of an element.
void transpose(std::span<const std::byte> from, std::span<const std::int64_t> shape,
               std::size_t bytes, Bytes* to) {
  std::vector<std::size_t> stride(shape.size(), bytes);  // of `from`
  for (std::size_t d = 1; d < shape.size(); ++d) {
    stride[d] = stride[d - 1] * static_cast<std::size_t>(shape[d - 1]);
  }
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t target = 0; target < to->size(); target += bytes) {
    std::memcpy(to->data() + target, from.data() + source, bytes);
    for (std::size_t d = shape.size(); d-- > 0;) {  // the next element in row-major order
      source += stride[d];
      if (++index[d] < shape[d]) break;
      source -= stride[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
}

}  // namespace

FileResult<Array> parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  const auto error = [&](std::size_t offset, std::string problem, std::string remedy) {
    return FileError{file, offset, std::move(problem), std::move(remedy)};
  };

  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (all.substr(0, kMagic.size()) != kMagic) return error(0, "not a .npy file", kSaveAgain);
  if (bytes.size() < 10) return error(bytes.size(), "the file ends in its preamble", kSaveAgain);
  const std::size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) {
    return error(6, fmt::format("version {}.{} is unknown; 1.0, 2.0 and 3.0 are", version, byte(7)),
                 kSaveAgain);
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t header_at = 8 + length_bytes;
  if (bytes.size() < header_at)
    return error(bytes.size(), "the file ends in its preamble", kSaveAgain);
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) header_bytes |= byte(8 + i) << (8 * i);
  if (header_bytes > bytes.size() - header_at) {
    return error(8,
                 fmt::format("the header is said to have {} bytes, the file has {} left",
                             header_bytes, bytes.size() - header_at),
                 kSaveAgain);
  }

  Header header;
  HeaderParser parser(all.substr(header_at, header_bytes));
  if (const char* wrong = parser.parse(&header)) {
    return error(header_at + parser.position(), wrong, kSaveAgain);
  }
  Element element = Element::f32;
  if (const char* wrong = parse_descr(header.descr, &element)) {
    return error(
        header_at, fmt::format("{}: descr '{}'", wrong, header.descr),
        "Convert with array.astype to little-endian float32, float64, float16, bool, uint8, "
        "int32 or int64, or save bfloat16 as V2.");
  }

  const std::size_t data_at = header_at + header_bytes;
  const auto data = bytes.subspan(data_at);
  const std::optional<std::size_t> size = tensor_bytes(element, header.shape);
  if (!size) {
    return error(header_at, fmt::format("the size of {} overflows", shape_text(header.shape)),
                 kSaveAgain);
  }
  if (*size != data.size()) {
    return error(data_at,
                 fmt::format("{} of {} needs {} bytes of data, the file has {}",
                             shape_text(header.shape), info(element).name, *size, data.size()),
                 "It was cut short or holds more than one array; save one array with numpy.save.");
  }
  Array array = make_array(element, std::move(header.shape));
  if (header.fortran_order && array.shape.size() > 1) {
    transpose(data, array.shape, info(element).bytes, &array.data);
  } else {
    std::copy(data.begin(), data.end(), array.data.begin());
  }
  return array;
}

FileResult<Array> read_npy(const std::string& path) {
  FileResult<Bytes> bytes = read_file(path);
  if (!bytes) return bytes.error();
  return parse_npy(*bytes, path);
}

std::optional<FileError> write_npy(const std::string& path, const Array& array) {
  const ElementInfo& element = info(array.element);
  if (!element.npy) {
    return FileError{path, 0, fmt::format(".npy cannot hold {}", element.name),
                     "Write a .safetensors file."};
  }
  const bool order_matters = element.bytes > 1 && array.element != Element::bf16;
  std::string shape;
  for (const std::int64_t size : array.shape) shape += fmt::format("{}, ", size);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   order_matters ? '<' : '|', element.npy, shape);
  // The format asks for data at a multiple of 64 and a newline at the end of the header.
  constexpr std::size_t kPreamble = 10;
  header.resize((kPreamble + header.size() + 1 + 63) / 64 * 64 - kPreamble - 1, ' ');
  header += '\n';
  std::string head(kMagic);
  head +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  head += header;
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(head)), array.data};
  return write_file(path, pieces);
}

}  // namespace strobe::tools
