// The cache on disk: what it returns, and what it does not trust.
#include "jit/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"

namespace strobe::jit {
namespace {

Digest key_of(const char* text) {
  Sha256 hash;
  hash.add_field(text);
  return hash.finish();
}

const std::vector<unsigned char> kImage(3000, 7);

TEST(Cache, FolderFollowsTheEnvironment) {
  const Variable home("HOME", "/home/someone");
  {
    const Variable own("STROBE_CACHE_DIR", "/own");
    EXPECT_EQ(cache_folder(), "/own");
  }
  {
    const Variable own("STROBE_CACHE_DIR", "");
    EXPECT_EQ(cache_folder(), "") << "empty: no cache";
  }
  const Variable own("STROBE_CACHE_DIR", nullptr);
  {
    const Variable xdg("XDG_CACHE_HOME", "/xdg");
    EXPECT_EQ(cache_folder(), "/xdg/strobe");
  }
  {
    const Variable xdg("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(cache_folder(), "/home/someone/.cache/strobe");
  }
  const Variable xdg("XDG_CACHE_HOME", nullptr);
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(cache_folder(), "");
}

TEST(Cache, ReadsWhatWasWritten) {
  const Scratch scratch;
  const Digest key = key_of("a");
  const std::string path = cache_path(scratch.path("new/folders"), "row-sm_90", key);
  std::vector<unsigned char> image;
  EXPECT_FALSE(cache_read(path, key, &image));
  ASSERT_TRUE(cache_write(path, key, kImage));
  ASSERT_TRUE(cache_read(path, key, &image));
  EXPECT_EQ(image, kImage);
  EXPECT_EQ(files_in(scratch.path("new/folders")).size(), 1u) << "a temporary file is left";
  struct stat facts;
  ASSERT_EQ(stat(scratch.path("new/folders").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0077, 0u) << "others may write code for this user's GPU";
}

TEST(Cache, EntryUnderAnotherKeyIsNotTrusted) {
  const Scratch scratch;
  const std::string path = scratch.path("entry");
  std::vector<unsigned char> image;
  ASSERT_TRUE(cache_write(path, key_of("a"), kImage));
  EXPECT_FALSE(cache_read(path, key_of("b"), &image));
  EXPECT_TRUE(image.empty());
}

TEST(Cache, AnyDamageIsNoticed) {
  const Scratch scratch;
  const Digest key = key_of("a");
  const std::string path = scratch.path("entry");
  std::vector<unsigned char> image;
  ASSERT_TRUE(cache_write(path, key, kImage));
  const std::string good = read_file(path);
  for (std::size_t at = 0; at < good.size(); at += at < 90 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_file(path, bad);
    EXPECT_FALSE(cache_read(path, key, &image)) << "byte " << at;
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{79}, std::size_t{80}, good.size() - 1}) {
    write_file(path, good.substr(0, size));
    EXPECT_FALSE(cache_read(path, key, &image)) << "cut to " << size;
  }
  write_file(path, good + "x");
  EXPECT_FALSE(cache_read(path, key, &image)) << "longer";
  write_file(path, good);
  EXPECT_TRUE(cache_read(path, key, &image)) << "the test itself";
}

TEST(Cache, ThingsThatAreNoFiles) {
  const Scratch scratch;
  std::vector<unsigned char> image;
  const std::string folder = scratch.path("folder");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_FALSE(cache_read(folder, key_of("a"), &image));
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(cache_read(pipe, key_of("a"), &image));
}

// A parent that is a file: not writable for anybody, root included.
TEST(Cache, UnwritableFolderIsNoError) {
  const Scratch scratch;
  write_file(scratch.path("file"), "");
  EXPECT_FALSE(cache_write(scratch.path("file/under/entry"), key_of("a"), kImage));
  EXPECT_FALSE(cache_write("/proc/strobe/entry", key_of("a"), kImage));
}

// Writers and readers of one entry at once: a reader sees a whole entry or none.
TEST(Cache, ManyProcesses) {
  const Scratch scratch;
  const Digest key = key_of("a");
  const std::string path = scratch.path("entry");
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool good = true;
      std::vector<unsigned char> image;
      for (int i = 0; i < 200; ++i) {
        good = good && cache_write(path, key, kImage);
        good = good && cache_read(path, key, &image) && image == kImage;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files_in(scratch.path()).size(), 1u);
}

}  // namespace
}  // namespace strobe::jit
