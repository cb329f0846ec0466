#include "model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace strobe::embed {
namespace {

constexpr float kNormEps = 1e-12f;

// Reads tensors of at least a known size; the first failure is kept and the rest come out empty.
class Loader {
 public:
  explicit Loader(const tools::Safetensors& file) : file_(file) {}

  Vector vector(const std::string& name, std::size_t size) {
    if (!error_.empty()) return {};
    tools::FileResult<tools::Array> array = file_.array(name);
    if (!array) {
      error_ = array.error().message();
      return {};
    }
    const std::size_t found = array->data.size() / sizeof(float);
    if (array->element != tools::Element::f32 || found < size) {
      error_ = name + " is not a float32 tensor of " + std::to_string(size) + " numbers or more";
      return {};
    }
    return Vector(array->as<float>(), array->as<float>() + found);
  }
  const std::string& error() const { return error_; }

 private:
  const tools::Safetensors& file_;
  std::string error_;
};

// Eight partial sums, which compilers turn into vector instructions.
float dot(const float* a, const float* b, std::size_t size) {
  std::array<float, 8> sums{};
  for (std::size_t i = 0; i < size; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (float x : sums) sum += x;
  return sum;
}

float gelu(float x) { return 0.5f * x * (1 + std::erf(x / std::sqrt(2.0f))); }

}  // namespace

std::optional<Model> Model::read(const std::string& directory, std::string* error) {
  Model model;
  std::optional<Tokenizer> tokenizer = Tokenizer::read(directory + "/vocab.txt");
  if (!tokenizer) {
    *error = directory + "/vocab.txt cannot be read, or is not a vocabulary of BERT";
    return std::nullopt;
  }
  model.tokenizer_ = std::move(*tokenizer);
  tools::FileResult<tools::Safetensors> file =
      tools::Safetensors::read(directory + "/model.safetensors");
  if (!file) {
    *error = file.error().message();
    return std::nullopt;
  }

  Loader load(*file);
  const auto linear = [&](const std::string& name, std::size_t in, std::size_t out) {
    return Linear{load.vector(name + ".weight", in * out), load.vector(name + ".bias", out)};
  };
  const auto norm = [&](const std::string& name) {
    return Norm{load.vector(name + ".weight", kHidden), load.vector(name + ".bias", kHidden)};
  };
  model.words_ =
      load.vector("embeddings.word_embeddings.weight", model.tokenizer_.size() * kHidden);
  model.positions_ =
      load.vector("embeddings.position_embeddings.weight", std::size_t{kMaxTokens} * kHidden);
  model.type_ = load.vector("embeddings.token_type_embeddings.weight", kHidden);
  model.embedding_norm_ = norm("embeddings.LayerNorm");
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "encoder.layer." + std::to_string(i) + ".";
    model.layers_.push_back({linear(name + "attention.self.query", kHidden, kHidden),
                             linear(name + "attention.self.key", kHidden, kHidden),
                             linear(name + "attention.self.value", kHidden, kHidden),
                             linear(name + "attention.output.dense", kHidden, kHidden),
                             norm(name + "attention.output.LayerNorm"),
                             linear(name + "intermediate.dense", kHidden, kInner),
                             linear(name + "output.dense", kInner, kHidden),
                             norm(name + "output.LayerNorm")});
  }
  *error = load.error();
  if (!error->empty()) return std::nullopt;
  return model;
}

Model::Rows Model::apply(const Linear& linear, const Rows& in) {
  const std::size_t out_size = linear.bias.size();
  const std::size_t in_size = linear.weight.size() / out_size;
  Rows out{in.count, Vector(in.count * out_size)};
  for (std::size_t j = 0; j < out_size; ++j) {
    const float* weight = &linear.weight[j * in_size];
    for (std::size_t r = 0; r < in.count; ++r) {
      out.x[r * out_size + j] = linear.bias[j] + dot(&in.x[r * in_size], weight, in_size);
    }
  }
  return out;
}

// x = norm(x + delta), row by row.
void Model::add_and_normalise(const Norm& norm, const Rows& delta, Rows* x) {
  for (std::size_t r = 0; r < x->count; ++r) {
    float* row = &x->x[r * kHidden];
    float mean = 0, variance = 0;
    for (int c = 0; c < kHidden; ++c) {
      row[c] += delta.x[r * kHidden + c];
      mean += row[c] / kHidden;
    }
    for (int c = 0; c < kHidden; ++c) variance += (row[c] - mean) * (row[c] - mean) / kHidden;
    const float scale = 1 / std::sqrt(variance + kNormEps);
    for (int c = 0; c < kHidden; ++c) {
      row[c] = (row[c] - mean) * scale * norm.weight[c] + norm.bias[c];
    }
  }
}

// Word and type embeddings plus positions; texts shorter than seqlen go on with [PAD].
Model::Rows Model::embeddings(const std::vector<std::vector<std::int32_t>>& tokens,
                              std::size_t seqlen) const {
  Rows x{tokens.size() * seqlen, Vector(tokens.size() * seqlen * kHidden)};
  Rows positions = x;
  for (std::size_t r = 0; r < x.count; ++r) {
    const auto& text = tokens[r / seqlen];
    const std::size_t i = r % seqlen;
    const auto word = static_cast<std::size_t>(i < text.size() ? text[i] : tokenizer_.pad());
    for (std::size_t c = 0; c < kHidden; ++c) {
      x.x[r * kHidden + c] = words_[word * kHidden + c] + type_[c];
      positions.x[r * kHidden + c] = positions_[i * kHidden + c];
    }
  }
  add_and_normalise(embedding_norm_, positions, &x);
  return x;
}

std::optional<std::vector<Vector>> Model::embed(const std::vector<std::string>& texts,
                                                std::string* error) const {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::int32_t> lengths;
  for (const std::string& text : texts) {
    auto encoded = tokenizer_.encode(text, kMaxTokens);
    if (!encoded) {
      *error = "only ASCII text is tokenised: " + text;
      return std::nullopt;
    }
    lengths.push_back(static_cast<std::int32_t>(encoded->size()));
    tokens.push_back(std::move(*encoded));
  }
  const std::int32_t seqlen = *std::max_element(lengths.begin(), lengths.end());

  // The rows of q, k, v and o are [batch, seqlen] and their columns [heads, head_dim]: the default
  // layout.
  const Problem problem{.batch = static_cast<std::int64_t>(texts.size()),
                        .heads = kHeads,
                        .seqlen_q = seqlen,
                        .seqlen_k = seqlen,
                        .head_dim = kHeadDim,
                        .lengths = Lengths::padded};
  Result<Plan> plan = make_plan(problem);
  if (!plan) {
    *error = plan.status().message();
    return std::nullopt;
  }
  HostWorkspace workspace(*plan);

  Rows x = embeddings(tokens, static_cast<std::size_t>(seqlen));
  for (const Layer& layer : layers_) {
    const Rows q = apply(layer.query, x), k = apply(layer.key, x), v = apply(layer.value, x);
    Rows o{x.count, Vector(x.x.size())};
    const Status status = plan->run({.q = q.x.data(),
                                     .k = k.x.data(),
                                     .v = v.x.data(),
                                     .o = o.x.data(),
                                     .seqlens_q = lengths.data(),
                                     .seqlens_k = lengths.data(),
                                     .workspace = workspace});
    if (!status) {
      *error = status.argument() + ": " + status.message();
      return std::nullopt;
    }
    add_and_normalise(layer.attention_norm, apply(layer.output, o), &x);
    Rows inner = apply(layer.inner, x);
    for (float& value : inner.x) value = gelu(value);
    add_and_normalise(layer.output_norm, apply(layer.outer, inner), &x);
  }

  std::vector<Vector> vectors(texts.size(), Vector(kHidden));
  for (std::size_t b = 0; b < texts.size(); ++b) {
    Vector& mean = vectors[b];
    for (std::int32_t i = 0; i < lengths[b]; ++i) {
      const float* row = &x.x[(b * static_cast<std::size_t>(seqlen) + i) * kHidden];
      for (std::size_t c = 0; c < kHidden; ++c) mean[c] += row[c] / lengths[b];
    }
    const float length = std::sqrt(dot(mean.data(), mean.data(), kHidden));
    for (float& value : mean) value /= length;
  }
  return vectors;
}

}  // namespace strobe::embed
