// Buffers with guard zones, strided tensors and rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "harness/harness.h"

namespace strobe::harness {
namespace {

constexpr unsigned char kPoison = 0xFF;
constexpr std::size_t kAlign = 256;

// value rounded to a multiple of 2^spacing_log2, ties to even, for |value| < 2^50 spacings: adding
// a number whose own spacing is 2^spacing_log2 leaves the rounding to the FPU.
double round_to_spacing(double value, int spacing_log2) {
  const double big = std::ldexp(1.5, 52 + spacing_log2);
  return (value + big) - big;
}

// digits: of the significand, the leading 1 included; least: log2 of the smallest positive number.
double round_to_format(double value, int digits, int least, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  const double rounded = round_to_spacing(value, std::max(std::ilogb(value) - (digits - 1), least));
  if (std::fabs(rounded) > largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return std::copysign(rounded, value);
}

std::uint32_t float_bits(double value) {
  const float narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

double from_float_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// f16 bits of a value that f16 holds exactly, by way of its float32 bits.
std::uint16_t encode_f16(double value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const int exponent = static_cast<int>((bits >> 23) & 255) - 127;
  if (exponent == 128) return sign | 0x7C00 | ((bits & 0x7FFFFF) != 0 ? 0x200 : 0);
  if (exponent < -14) {
    return sign | static_cast<std::uint16_t>(std::fabs(value) * 16777216.0);  // in units of 2^-24
  }
  return sign | static_cast<std::uint16_t>(((exponent + 15) << 10) | ((bits >> 13) & 0x3FF));
}

double decode_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t rest = half & 0x7FFFu;
  if (rest < 0x400) return (sign ? -1 : 1) * (rest / 16777216.0);
  const std::uint32_t rebias = rest >= 0x7C00 ? (255u - 31u) << 23 : (127u - 15u) << 23;
  return from_float_bits(sign | ((rest << 13) + rebias));
}

std::int64_t element_of(const Tensor& t, const Index& at) {
  std::int64_t element = t.origin;
  for (int d = 0; d < 4; ++d) element += at[d] * t.stride[d];
  return element;
}

Index contiguous(const Index& size) {
  return {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
}

}  // namespace

Buffer::Buffer(std::size_t bytes, std::size_t misalign)
    : storage_(bytes + 2 * kGuardBytes + 2 * kAlign, kPoison),
      bytes_(bytes),
      misalign_(misalign % kAlign) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuardBytes;
  begin_ = kGuardBytes + (kAlign - address % kAlign) % kAlign + misalign_;
}

// The storage moves, so the payload is placed anew.
Buffer::Buffer(const Buffer& other) : Buffer(other.bytes_, other.misalign_) {
  std::copy_n(other.data(), bytes_, data());
}

Buffer& Buffer::operator=(Buffer other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  std::swap(misalign_, other.misalign_);
  return *this;
}

void Buffer::poison() { std::fill_n(data(), bytes_, kPoison); }

bool Buffer::guards_intact() const {
  const auto is_poison = [](unsigned char byte) { return byte == kPoison; };
  const auto payload = storage_.begin() + static_cast<std::ptrdiff_t>(begin_);
  return std::all_of(storage_.begin(), payload, is_poison) &&
         std::all_of(payload + static_cast<std::ptrdiff_t>(bytes_), storage_.end(), is_poison);
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<float>(value);
    case DType::bf16:
      return round_to_format(value, 8, -133, from_float_bits(0x7F7F0000));
    case DType::f16:
      return round_to_format(value, 11, -24, 65504);
    default:
      return value;
  }
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::ldexp(1, -23);
    case DType::bf16:
      return std::ldexp(1, -7);
    case DType::f16:
      return std::ldexp(1, -10);
    default:
      return std::ldexp(1, -52);
  }
}

Tensor::Tensor(DType dtype, Index size, Index stride, std::size_t misalign)
    : dtype(dtype), size(size), stride(stride) {
  std::int64_t last = 0;  // largest element relative to index {0, 0, 0, 0}
  for (int d = 0; d < 4; ++d) {
    const std::int64_t reach = std::max<std::int64_t>(size[d] - 1, 0) * stride[d];
    (reach < 0 ? origin : last) += std::abs(reach);
  }
  const std::size_t element_bytes = dtype_bytes(dtype);
  const std::size_t before = static_cast<std::size_t>(origin) * element_bytes % kAlign;
  const std::size_t count = elements() == 0 ? 0 : static_cast<std::size_t>(origin + last + 1);
  if (count == 0) origin = 0;
  buffer = Buffer(count * element_bytes, misalign + kAlign - before);
}

Tensor::Tensor(DType dtype, Index size) : Tensor(dtype, size, contiguous(size)) {}

const void* Tensor::data() const {
  if (!defined()) return nullptr;
  return buffer.data() + static_cast<std::size_t>(origin) * dtype_bytes(dtype);
}

void* Tensor::data() { return const_cast<void*>(std::as_const(*this).data()); }

double Tensor::get(const Index& at) const {
  const unsigned char* address =
      buffer.data() + static_cast<std::size_t>(element_of(*this, at)) * dtype_bytes(dtype);
  const auto read = [address](auto value) {
    std::memcpy(&value, address, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return read(float{});
    case DType::f64:
      return read(double{});
    case DType::bf16:
      return from_float_bits(std::uint32_t{read(std::uint16_t{})} << 16);
    case DType::f16:
      return decode_f16(read(std::uint16_t{}));
    default:
      return *address;
  }
}

void Tensor::set(const Index& at, double value) {
  unsigned char* address =
      buffer.data() + static_cast<std::size_t>(element_of(*this, at)) * dtype_bytes(dtype);
  const auto write = [address](auto bits) { std::memcpy(address, &bits, sizeof(bits)); };
  const double rounded = round_to(dtype, value);
  switch (dtype) {
    case DType::f32:
      return write(static_cast<float>(rounded));
    case DType::f64:
      return write(rounded);
    case DType::bf16:
      return write(static_cast<std::uint16_t>(float_bits(rounded) >> 16));
    case DType::f16:
      return write(encode_f16(rounded));
    default:
      *address = static_cast<unsigned char>(value);
  }
}

}  // namespace strobe::harness
