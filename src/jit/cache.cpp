#include "jit/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace strobe::jit {
namespace {

struct EntryHeader {
  char magic[8];
  std::uint64_t bytes;  // of the image, which follows
  Digest key;
  Digest checksum;  // of the image
};
static_assert(sizeof(EntryHeader) == 80);

constexpr char kMagic[8] = {'S', 'T', 'R', 'O', 'B', 'E', 'J', '1'};
constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;

Digest checksum_of(const std::vector<unsigned char>& image) {
  Sha256 hash;
  hash.add(image.data(), image.size());
  return hash.finish();
}

bool read_all(int file, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = read(file, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int file, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = write(file, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

// mkdir -p, for the owner alone. Failures show when a file is made in it.
void make_folder(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);
  }
  mkdir(path.c_str(), 0700);
}

bool read_entry(int file, const Digest& key, std::vector<unsigned char>* image) {
  struct stat facts;
  EntryHeader header;
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) ||
      !read_all(file, &header, sizeof(header)) ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key != key ||
      header.bytes > kLargest ||
      static_cast<std::uint64_t>(facts.st_size) != sizeof(header) + header.bytes) {
    return false;
  }
  image->resize(header.bytes);
  return read_all(file, image->data(), image->size()) && checksum_of(*image) == header.checksum;
}

}  // namespace

std::string cache_folder() {
  if (const char* own = std::getenv("STROBE_CACHE_DIR")) return own;
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base != nullptr && base[0] == '/') return std::string(base) + "/strobe";  // as XDG says
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/strobe" : "";
}

std::string cache_path(const std::string& folder, const std::string& label, const Digest& key) {
  return folder + "/" + label.substr(0, 100) + "-" + hex(key).substr(0, 40) + ".kernel";
}

bool cache_read(const std::string& path, const Digest& key, std::vector<unsigned char>* image) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never waits for a pipe
  if (file < 0) return false;
  const bool good = read_entry(file, key, image);
  close(file);
  if (!good) image->clear();
  return good;
}

bool cache_write(const std::string& path, const Digest& key,
                 const std::vector<unsigned char>& image) {
  make_folder(path.substr(0, path.rfind('/')));
  EntryHeader header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.bytes = image.size();
  header.key = key;
  header.checksum = checksum_of(image);

  std::string aside = path + ".XXXXXX";
  const int file = mkostemp(aside.data(), O_CLOEXEC);
  if (file < 0) return false;
  const bool written =
      write_all(file, &header, sizeof(header)) && write_all(file, image.data(), image.size());
  const bool closed = close(file) == 0;
  if (written && closed && std::rename(aside.c_str(), path.c_str()) == 0) return true;
  unlink(aside.c_str());
  return false;
}

}  // namespace strobe::jit
