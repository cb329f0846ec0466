// NumPy's .npy format, versions 1 to 3.
//
// Read: float32, float64, float16, bfloat16 (numpy writes it as the void type V2), bool, uint8,
// int32, int64, little-endian; Fortran order is transposed. Refused, with what to do: big-endian,
// structured, object and other types, and a file whose size is not that of its array.
#ifndef STROBE_TOOLS_IO_NPY_H_
#define STROBE_TOOLS_IO_NPY_H_

#include "io/array.h"

namespace strobe::tools {

// `file` names the bytes in errors.
FileResult<Array> parse_npy(std::span<const std::byte> bytes, const std::string& file);
FileResult<Array> read_npy(const std::string& path);

// Version 1.0, C order. bfloat16 is written as V2: numpy.load(path).view(ml_dtypes.bfloat16) reads
// it.
std::optional<FileError> write_npy(const std::string& path, const Array& array);

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_IO_NPY_H_
