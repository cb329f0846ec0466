// The .npy and .safetensors readers on arbitrary bytes: no crash, and what is accepted is whole.
//
// Random bytes hardly ever pass the first check of either format, so the first byte of the input
// chooses between reading the rest as it is and editing a valid file with it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>

#include "io/npy.h"
#include "io/safetensors.h"

namespace {

using strobe::tools::Array;
using strobe::tools::Bytes;
using strobe::tools::FileResult;
using strobe::tools::Safetensors;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_array(FileResult<Array> array) {
  if (!array) {
    check(!array.error().message().empty());
    return;
  }
  check(array->data.size() == strobe::tools::tensor_bytes(array->element, array->shape));
}

void read_npy(const std::string& text) {
  check_array(strobe::tools::parse_npy(std::as_bytes(std::span(text)), "fuzz.npy"));
}

void read_safetensors(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  FileResult<Safetensors> file =
      Safetensors::parse(Bytes(bytes.begin(), bytes.end()), "fuzz.safetensors");
  if (!file) return;
  for (const std::string& name : file->names()) check_array(file->array(name));
}

const std::string kNpy = std::string("\x93NUMPY\x01\x00\x3f\x00", 10) +
                         "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }    \n" +
                         std::string(24, 'x');
const std::string kSafetensors =
    std::string("\x74\0\0\0\0\0\0\0", 8) +
    R"({"q":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"k":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})"
    "   " +
    std::string(32, 'x');

// Four bytes are one edit: what, where (two bytes), and a character, mostly one that the headers
// use.
std::string edited(std::string text, const std::uint8_t* data, std::size_t size) {
  constexpr char kCharacters[] = "0123456789-,:.'\"()[]{}<>|fFVbiTrue \n\\x1b\xff";
  for (; size >= 4 && !text.empty(); data += 4, size -= 4) {
    const std::size_t at = (data[1] | std::size_t{data[2]} << 8) % text.size();
    const char character = data[0] & 0x80 ? static_cast<char>(data[3])
                                          : kCharacters[data[3] % (std::size(kCharacters) - 1)];
    switch (data[0] % 8) {
      case 0:
        text.erase(at, 1 + data[3] % 4);
        break;
      case 1:
        text.insert(at, 1, character);
        break;
      case 2:
        text.resize(at);
        break;
      case 3:  // twice the same piece
        text.insert(at, text.substr(at, data[3]));
        break;
      default:
        text[at] = character;
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t choice = data[0] % 4;
  ++data;
  --size;
  const std::string raw(reinterpret_cast<const char*>(data), size);
  // A few edits leave most of a file valid; thousands would leave nothing of it.
  const std::size_t edits = std::min<std::size_t>(size, 4 * (1 + (size > 0 ? data[0] % 8 : 0)));
  if (choice == 0) read_npy(raw);
  if (choice == 1) read_safetensors(raw);
  if (choice == 2) read_npy(edited(kNpy, data, edits));
  if (choice == 3) read_safetensors(edited(kSafetensors, data, edits));
  return 0;
}
