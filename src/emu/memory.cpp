#include "emu/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace strobe::emu {

void Memory::add(const std::string& name, const void* base, std::uint64_t bytes, TensorKind kind) {
  if (!base || bytes == 0) return;
  std::string joined = name;
  auto begin = reinterpret_cast<std::uintptr_t>(base);
  std::uintptr_t end = begin + bytes;
  // Take every tensor that this one overlaps into it.
  for (auto t = tensors_.begin(); t != tensors_.end();) {
    const auto other = reinterpret_cast<std::uintptr_t>(t->base);
    if (other >= end || other + t->bytes <= begin) {
      ++t;
      continue;
    }
    joined = t->traffic.name + "+" + joined;
    if (t->kind != kind) kind = TensorKind::kState;
    begin = std::min(begin, other);
    end = std::max(end, other + t->bytes);
    t = tensors_.erase(t);
  }
  Tensor& tensor = tensors_.emplace_back();
  tensor.traffic.name = joined;
  tensor.base = reinterpret_cast<char*>(begin);
  tensor.bytes = end - begin;
  tensor.kind = kind;
  if (kind != TensorKind::kInput) tensor.shadow.resize(tensor.bytes, kind == TensorKind::kState);
}

Tensor* Memory::find(std::uintptr_t address, std::uint64_t size) {
  for (Tensor& t : tensors_) {
    if (t.holds(address, size)) return &t;
  }
  return nullptr;
}

std::string Memory::describe(std::uintptr_t address) const {
  const Tensor* nearest = nullptr;
  std::int64_t distance = 0;
  for (const Tensor& t : tensors_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(t.base);
    const auto past = static_cast<std::int64_t>(address - begin);
    const std::int64_t d =
        past < 0 ? past : std::max<std::int64_t>(0, past - static_cast<std::int64_t>(t.bytes) + 1);
    if (!nearest || std::abs(d) < std::abs(distance)) {
      nearest = &t;
      distance = d;
    }
  }
  if (!nearest) return "no tensor is registered";
  return fmt::format(
      "byte {} of {}, which has {} bytes",
      static_cast<std::int64_t>(address - reinterpret_cast<std::uintptr_t>(nearest->base)),
      nearest->traffic.name, nearest->bytes);
}

bool Memory::zero(void* base, std::uint64_t bytes) {
  if (bytes == 0) return true;
  Tensor* t = find(reinterpret_cast<std::uintptr_t>(base), bytes);
  if (!t || t->kind == TensorKind::kInput) return false;
  std::memset(base, 0, bytes);
  t->shadow.mark_written(static_cast<std::uint64_t>(static_cast<char*>(base) - t->base), bytes);
  t->traffic.bytes_written += bytes;
  return true;
}

void Memory::begin_launch() {
  std::size_t number = 0;
  for (Tensor& t : tensors_) t.number = number++;
}

void Memory::add_traffic(const std::vector<TensorTraffic>& traffic) {
  for (Tensor& t : tensors_) {
    if (t.number >= traffic.size()) continue;
    t.traffic.bytes_read += traffic[t.number].bytes_read;
    t.traffic.bytes_written += traffic[t.number].bytes_written;
    t.traffic.bytes_reduced += traffic[t.number].bytes_reduced;
  }
}

void Memory::end_launch() {
  for (Tensor& t : tensors_) {
    if (t.kind != TensorKind::kInput) t.shadow.end_launch();
    t.released.clear();
  }
}

void Memory::add_traffic_to(Report& report) const {
  for (const Tensor& t : tensors_) report.tensors.push_back(t.traffic);
}

}  // namespace strobe::emu
