#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace strobe::tools {
namespace {

using nlohmann::json;

// Layout: header length (8 bytes), header (JSON, may end in spaces), data.
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kSaveAgain = "Save it again with safetensors' save_file.";

const ElementInfo* find_element(const std::string& safetensors_name) {
  for (const ElementInfo& row : element_table()) {
    if (row.safetensors == safetensors_name) return &row;
  }
  return nullptr;
}

// JSON keeps the last of two equal keys, and the format forbids them: parse and report the first.
json parse_json(std::string_view text, std::string* duplicate) {
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && duplicate->empty()) *duplicate = key;
    }
    return true;
  };
  return json::parse(text, watch, /*allow_exceptions=*/false);
}

// A non-negative integer, or nothing.
std::optional<std::uint64_t> unsigned_of(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<std::uint64_t>();
}

// Fills in dims from a JSON array of sizes.
bool parse_shape(const json& value, std::vector<std::int64_t>* dims) {
  if (!value.is_array()) return false;
  for (const json& item : value) {
    const auto size = unsigned_of(item);
    if (!size || *size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return false;
    dims->push_back(static_cast<std::int64_t>(*size));
  }
  return true;
}

}  // namespace

FileResult<Safetensors> Safetensors::read(const std::string& path) {
  FileResult<Bytes> bytes = read_file(path);
  if (!bytes) return bytes.error();
  return parse(std::move(*bytes), path);
}

FileResult<Safetensors> Safetensors::parse(Bytes bytes, const std::string& file) {
  Safetensors tensors;
  tensors.file_ = file;
  tensors.bytes_ = std::move(bytes);
  const Bytes& all = tensors.bytes_;
  if (all.size() < kLengthBytes) {
    return FileError{file, all.size(), "the file ends in the length of its header", kSaveAgain};
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(all[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes || header_bytes > all.size() - kLengthBytes) {
    return FileError{file, 0,
                     fmt::format("the header is said to have {} bytes, the file has {} left",
                                 header_bytes, all.size() - kLengthBytes),
                     "It is not a .safetensors file, or it was cut short."};
  }
  if (auto error = tensors.parse_header(header_bytes)) return *error;
  if (auto error = tensors.check_cover(kLengthBytes + header_bytes)) return *error;
  return tensors;
}

std::optional<FileError> Safetensors::parse_header(std::size_t header_bytes) {
  const auto error = [&](std::string problem) {
    return FileError{file_, kLengthBytes, std::move(problem), kSaveAgain};
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes,
                              header_bytes);
  std::string duplicate;
  const json header = parse_json(text, &duplicate);
  if (!header.is_object()) return error("the header is not a JSON object");
  if (!duplicate.empty()) return error(fmt::format("the header has the key '{}' twice", duplicate));

  const std::size_t data_at = kLengthBytes + header_bytes;
  const std::size_t data_bytes = bytes_.size() - data_at;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) continue;
    const auto bad = [&](std::string_view what) {
      return error(fmt::format("tensor '{}': {}", name, what));
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value.contains("data_offsets")) {
      return bad("its entry lacks dtype, shape or data_offsets");
    }
    Entry entry;
    entry.dtype = value["dtype"].get<std::string>();
    if (!parse_shape(value["shape"], &entry.shape)) return bad("its shape is not a list of sizes");

    const json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2)
      return bad("its data_offsets are not two numbers");
    const auto begin = unsigned_of(offsets[0]);
    const auto end = unsigned_of(offsets[1]);
    if (!begin || !end || *begin > *end || *end > data_bytes) {
      return bad(fmt::format("its data_offsets do not lie in the {} bytes of data", data_bytes));
    }
    entry.begin = data_at + *begin;
    entry.end = data_at + *end;
    if (const ElementInfo* element = find_element(entry.dtype)) {
      const auto size = tensor_bytes(element->element, entry.shape);
      if (!size || *size != *end - *begin) {
        return bad(fmt::format("{} of {} does not take the {} bytes of its data_offsets",
                               shape_text(entry.shape), entry.dtype, *end - *begin));
      }
    }
    entries_.emplace(name, std::move(entry));
  }
  return std::nullopt;
}

std::optional<FileError> Safetensors::check_cover(std::size_t data_at) const {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& [name, entry] : entries_) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  std::size_t covered = data_at;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      return FileError{file_, begin, "the tensors overlap or leave a hole between them",
                       kSaveAgain};
    }
    covered = end;
  }
  if (covered != bytes_.size()) {
    return FileError{file_, covered, "data follows that belongs to no tensor", kSaveAgain};
  }
  return std::nullopt;
}

FileResult<Array> Safetensors::array(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    return FileError{file_, kLengthBytes, fmt::format("there is no tensor '{}'", name),
                     fmt::format("It holds: {}.", fmt::join(names(), ", "))};
  }
  const Entry& entry = it->second;
  const ElementInfo* element = find_element(entry.dtype);
  if (!element) {
    return FileError{file_, entry.begin,
                     fmt::format("tensor '{}' has the unsupported type {}", name, entry.dtype),
                     "Convert it to F32, F64, F16, BF16, F8_E4M3, F8_E5M2, BOOL, U8, I32 or I64."};
  }
  Array array{element->element, entry.shape, {}};
  array.data.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(entry.begin),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(entry.end));
  return array;
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::optional<FileError> write_safetensors(const std::string& path,
                                           const std::map<std::string, Array>& arrays) {
  json header = json::object();
  std::vector<std::span<const std::byte>> pieces(1);  // the first: length and header
  std::size_t offset = 0;
  for (const auto& [name, array] : arrays) {
    header[name] = {{"dtype", info(array.element).safetensors},
                    {"shape", array.shape},
                    {"data_offsets", {offset, offset + array.data.size()}}};
    offset += array.data.size();
    pieces.emplace_back(array.data);
  }
  std::string text = header.dump();
  text.resize((kLengthBytes + text.size() + 63) / 64 * 64 - kLengthBytes, ' ');  // aligns the data
  std::string head(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    head[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  }
  head += text;
  pieces[0] = std::as_bytes(std::span(head));
  return write_file(path, pieces);
}

}  // namespace strobe::tools
