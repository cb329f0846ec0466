// Compiled code on disk, shared by all processes of a user. An entry's name and content both carry
// the digest of all that went into it, and its checksum: a damaged, truncated or foreign file reads
// as absent. Entries appear whole (written aside, then renamed). A folder that cannot be written is
// no error: there is just no cache. Whoever may write there may choose the code that runs on the
// GPU, as with ~/.bashrc; the folder is made for its owner alone.
#ifndef STROBE_SRC_JIT_CACHE_H_
#define STROBE_SRC_JIT_CACHE_H_

#include <string>
#include <vector>

#include "jit/sha256.h"

namespace strobe::jit {

// $STROBE_CACHE_DIR (empty: no cache), else $XDG_CACHE_HOME/strobe, else ~/.cache/strobe; "" for
// none. Read anew at each call.
std::string cache_folder();

// The path of an entry; `label` is for people.
std::string cache_path(const std::string& folder, const std::string& label, const Digest& key);

bool cache_read(const std::string& path, const Digest& key, std::vector<unsigned char>* image);
// Whether it is there now.
bool cache_write(const std::string& path, const Digest& key,
                 const std::vector<unsigned char>& image);

}  // namespace strobe::jit

#endif  // STROBE_SRC_JIT_CACHE_H_
