// The input tensors of `strobe run`: loaded from files, checked against each other, and turned into
// the shapes of a Problem.
#ifndef STROBE_TOOLS_RUN_TENSORS_H_
#define STROBE_TOOLS_RUN_TENSORS_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <strobe/strobe.hpp>
#include <vector>

#include "io/array.h"

namespace strobe::tools {

// One input: the option that names it and what it is.
struct InputSpec {
  const char* name;  // as in strobe.h; the option is "--name" with '-' for '_'
  const char* help;
};
// In order of the help text. q, k and v come first.
std::span<const InputSpec> input_specs();
std::string option_of(const std::string& name);  // "cu_seqlens_q" -> "--cu-seqlens-q"

class RunTensors {
 public:
  // Loads the tensors in `given`: name -> path of a .npy file, or, where `in_file` is not empty, ->
  // name of a tensor in that .safetensors file. Returns what went wrong.
  std::optional<std::string> load(const std::string& in_file,
                                  const std::map<std::string, std::string>& given);

  // Fills in the shapes of the problem, whose layout is set. Returns what does not fit, naming the
  // option.
  std::optional<std::string> describe(Problem* problem);

  bool has(const std::string& name) const { return arrays_.count(name) != 0; }

  // Pointers of the inputs; integer tensors as the int32 that describe() made of them.
  RunArgs args() const;

  // Shapes of outputs, after describe().
  std::vector<std::int64_t> shape_like_q(std::int64_t head_dim) const;  // o
  std::vector<std::int64_t> lse_shape() const;
  const Array& array(const std::string& name) const { return arrays_.at(name); }

 private:
  // Sizes of a tensor in a given layout; batch is 1 in varlen.
  struct Dims {
    std::int64_t batch, seq, heads, dim;
  };

  std::vector<std::int64_t> shape_of(const Dims& dims) const;
  std::optional<std::string> read_dims(const std::string& name, Dims* dims) const;
  std::optional<std::string> expect(const std::string& name, Element element,
                                    const std::vector<std::int64_t>& shape) const;
  std::optional<std::string> read_lengths(Problem* problem);
  std::optional<std::string> read_qkv(Problem* problem);
  std::optional<std::string> read_score_tensors(Problem* problem) const;
  std::optional<std::string> read_vectors(Problem* problem) const;
  const void* data(const std::string& name) const;

  std::map<std::string, Array> arrays_;
  std::map<std::string, std::vector<std::int32_t>> integers_;  // cu_seqlens and seqlens
  Layout layout_ = Layout::bshd;
  bool varlen_ = false;
  Dims q_{}, k_{};
};

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_RUN_TENSORS_H_
