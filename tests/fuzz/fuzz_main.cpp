// Drives a fuzz target without libFuzzer: the files given on the command line, then pseudo-random
// inputs, each made from its number alone.
//
//     fuzz_api [--seed FIRST] [--runs N] [--seconds S] [--save FILE] [FILE...]
//
// A sanitizer or a crash ends the program; "input 17" is then repeated by --seed 17 --runs 1, and
// --save writes it as a file for libFuzzer or a regression corpus.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

// Bytes with structure that uniform ones lack: small numbers, extremes, runs.
Bytes make_input(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(random() % 2048);
  const int style = static_cast<int>(random() % 4);
  for (std::uint8_t& byte : bytes) {
    const std::uint64_t draw = random();
    switch (style) {
      case 0:  // uniform
        byte = static_cast<std::uint8_t>(draw);
        break;
      case 1:  // mostly zero
        byte = draw % 8 == 0 ? static_cast<std::uint8_t>(draw >> 8) : 0;
        break;
      case 2:  // small
        byte = static_cast<std::uint8_t>((draw >> 8) % 4);
        break;
      default:  // extremes among uniform
        byte = draw % 4 == 0 ? 0xFF : draw % 4 == 1 ? 0x80 : static_cast<std::uint8_t>(draw >> 8);
    }
  }
  return bytes;
}

Bytes read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path);
    std::exit(2);
  }
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t runs = UINT64_MAX;
  double seconds = 0;  // 0: no limit
  const char* save = nullptr;
  std::vector<const char*> files;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0) {
      options.files.push_back(argv[i]);
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value != nullptr && name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (value != nullptr && name == "--runs") {
      options.runs = std::strtoull(value, nullptr, 10);
    } else if (value != nullptr && name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (value != nullptr && name == "--save") {
      options.save = value;
    } else {
      std::fprintf(stderr,
                   "usage: %s [--seed FIRST] [--runs N] [--seconds S] [--save FILE] [FILE...]\n",
                   argv[0]);
      std::exit(2);
    }
  }
  if (options.runs == UINT64_MAX && options.seconds == 0) {
    options.runs = options.files.empty() ? 1000 : 0;
  }
  return options;
}

std::uint64_t current_seed = 0;

void say_seed() {
  std::fprintf(stderr, "at input %llu\n", static_cast<unsigned long long>(current_seed));
}

void on_signal(int signal) {
  say_seed();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

// The sanitizers call these, where there are any, when they have found something.
extern "C" void __asan_on_error() { say_seed(); }
extern "C" void __ubsan_on_report() { say_seed(); }

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE}) {
    const auto before = std::signal(signal, on_signal);
    if (before != SIG_DFL) std::signal(signal, before);  // a sanitizer's
  }
  for (const char* path : options.files) {
    const Bytes bytes = read_file(path);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t done = 0;
  for (; done < options.runs; ++done) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (options.seconds > 0 && spent.count() > options.seconds) break;
    current_seed = options.seed + done;
    const Bytes bytes = make_input(current_seed);
    if (options.save != nullptr) {
      std::ofstream(options.save, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files and %llu inputs from seed %llu\n", options.files.size(),
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(options.seed));
  return 0;
}
