#include "tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <fstream>

namespace strobe::embed {

std::optional<Tokenizer> Tokenizer::read(const std::string& path) {
  std::ifstream file(path);
  Tokenizer tokenizer;
  std::int32_t id = 0;
  for (std::string line; std::getline(file, line); ++id) tokenizer.ids_.emplace(line, id);
  for (const char* special : {"[CLS]", "[SEP]", "[PAD]", "[UNK]"}) {
    if (!tokenizer.ids_.contains(special)) return std::nullopt;
  }
  return tokenizer;
}

std::optional<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                           std::size_t max_tokens) const {
  std::vector<std::int32_t> tokens{ids_.at("[CLS]")};
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) append_pieces(word, &tokens);
    word.clear();
  };
  for (const char c : text) {
    if (static_cast<unsigned char>(c) > 127) return std::nullopt;
    if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else {  // punctuation stands alone; blanks and control characters vanish
      flush();
      if (c > ' ' && c != '\x7f') append_pieces(std::string(1, c), &tokens);
    }
  }
  flush();
  if (tokens.size() > max_tokens - 1) tokens.resize(max_tokens - 1);
  tokens.push_back(ids_.at("[SEP]"));
  return tokens;
}

// Greedy: the longest known prefix, then the longest known continuations. A word that does not
// come out even is [UNK] as a whole.
void Tokenizer::append_pieces(const std::string& word, std::vector<std::int32_t>* tokens) const {
  const std::size_t before = tokens->size();
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = word.size();
    auto piece = ids_.end();
    for (; end > begin; --end) {
      piece = ids_.find((begin ? "##" : "") + word.substr(begin, end - begin));
      if (piece != ids_.end()) break;
    }
    if (piece == ids_.end()) {
      tokens->resize(before);
      tokens->push_back(ids_.at("[UNK]"));
      return;
    }
    tokens->push_back(piece->second);
    begin = end;
  }
}

}  // namespace strobe::embed
