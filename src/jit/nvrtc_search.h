// Where NVRTC may be. Paths alone: nothing is opened.
#ifndef STROBE_SRC_JIT_NVRTC_SEARCH_H_
#define STROBE_SRC_JIT_NVRTC_SEARCH_H_

#include <string>
#include <string_view>
#include <vector>

namespace strobe::jit {

struct NvrtcSearch {
  std::vector<std::string> candidates;  // for dlopen, in order
  std::vector<std::string> places;      // for people: what was looked through
};
NvrtcSearch nvrtc_search();

std::string folder_of(const std::string& path);
// Paths of the files in `folder` whose name starts with `prefix`, sorted; none if unreadable.
std::vector<std::string> matching(const std::string& folder, std::string_view prefix);

}  // namespace strobe::jit

#endif  // STROBE_SRC_JIT_NVRTC_SEARCH_H_
