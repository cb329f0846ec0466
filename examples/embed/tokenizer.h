// BERT's lower-case WordPiece tokenizer, for ASCII text.
#ifndef STROBE_EXAMPLES_EMBED_TOKENIZER_H_
#define STROBE_EXAMPLES_EMBED_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strobe::embed {

class Tokenizer {
 public:
  // Reads a vocab.txt: one token a line, its id the line's number. Nothing where the file cannot be
  // read or lacks [CLS], [SEP], [PAD] or [UNK].
  static std::optional<Tokenizer> read(const std::string& path);

  // [CLS] tokens [SEP], cut to max_tokens; nothing for text that is not ASCII, whose lower case and
  // accents would need Unicode tables.
  std::optional<std::vector<std::int32_t>> encode(std::string_view text,
                                                  std::size_t max_tokens) const;
  std::size_t size() const { return ids_.size(); }
  std::int32_t pad() const { return ids_.at("[PAD]"); }

 private:
  void append_pieces(const std::string& word, std::vector<std::int32_t>* tokens) const;

  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace strobe::embed

#endif  // STROBE_EXAMPLES_EMBED_TOKENIZER_H_
