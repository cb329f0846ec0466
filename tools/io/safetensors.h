// The safetensors format: a length, a JSON header that names tensors, and their data.
//
// Read: F32, F64, F16, BF16, F8_E4M3, F8_E5M2, BOOL, U8, I32, I64; a tensor of another type is
// refused when it is asked for, so that the others stay readable. The header is checked in full
// first: every range inside the data, of the size of its tensor, and together covering the data
// without hole or overlap.
#ifndef STROBE_TOOLS_IO_SAFETENSORS_H_
#define STROBE_TOOLS_IO_SAFETENSORS_H_

#include <map>

#include "io/array.h"

namespace strobe::tools {

class Safetensors {
 public:
  // `file` names the bytes in errors.
  static FileResult<Safetensors> parse(Bytes bytes, const std::string& file);
  static FileResult<Safetensors> read(const std::string& path);

  FileResult<Array> array(const std::string& name) const;  // a copy
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  std::vector<std::string> names() const;

 private:
  struct Entry {
    std::string dtype;  // as in the header
    std::vector<std::int64_t> shape;
    std::size_t begin = 0;  // bytes from the start of the file
    std::size_t end = 0;
  };

  std::optional<FileError> parse_header(std::size_t header_bytes);
  std::optional<FileError> check_cover(std::size_t data_at) const;

  std::string file_;
  Bytes bytes_;
  std::map<std::string, Entry> entries_;
};

std::optional<FileError> write_safetensors(const std::string& path,
                                           const std::map<std::string, Array>& arrays);

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_IO_SAFETENSORS_H_
