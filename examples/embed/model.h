// The sentence transformer all-MiniLM-L6-v2: BERT with 6 layers, 12 heads of 32. Linear layers and
// norms are plain loops; attention is Strobe's.
#ifndef STROBE_EXAMPLES_EMBED_MODEL_H_
#define STROBE_EXAMPLES_EMBED_MODEL_H_

#include <optional>
#include <string>
#include <strobe/strobe.hpp>
#include <vector>

#include "io/safetensors.h"
#include "tokenizer.h"

namespace strobe::embed {

using Vector = std::vector<float>;

class Model {
 public:
  static constexpr int kLayers = 6;
  static constexpr int kHeads = 12;
  static constexpr int kHeadDim = 32;
  static constexpr int kHidden = kHeads * kHeadDim;
  static constexpr int kInner = 4 * kHidden;
  static constexpr int kMaxTokens = 256;  // the model was trained on no longer ones

  // From a directory with model.safetensors and vocab.txt; on failure *error says why.
  static std::optional<Model> read(const std::string& directory, std::string* error);

  // One vector of length 1 per text: the mean over its tokens' last hidden states, normalised. All
  // texts run as one padded batch. On failure (a text that is not ASCII, a refused plan) *error
  // says why.
  std::optional<std::vector<Vector>> embed(const std::vector<std::string>& texts,
                                           std::string* error) const;

 private:
  struct Linear {   // y = W x + b
    Vector weight;  // [out, in]
    Vector bias;
  };
  struct Norm {
    Vector weight, bias;
  };
  struct Layer {
    Linear query, key, value, output;
    Norm attention_norm;
    Linear inner, outer;
    Norm output_norm;
  };

  // Row r, column c is x[r * columns + c].
  struct Rows {
    std::size_t count;
    Vector x;
  };

  static Rows apply(const Linear& linear, const Rows& in);
  static void add_and_normalise(const Norm& norm, const Rows& delta, Rows* x);
  Rows embeddings(const std::vector<std::vector<std::int32_t>>& tokens, std::size_t seqlen) const;

  Tokenizer tokenizer_;
  Vector words_, positions_, type_;  // [vocabulary, hidden], [512, hidden], [hidden]
  Norm embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace strobe::embed

#endif  // STROBE_EXAMPLES_EMBED_MODEL_H_
