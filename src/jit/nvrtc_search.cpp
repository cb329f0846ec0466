#include "jit/nvrtc_search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace strobe::jit {
namespace {

// Newest first. Symbolic links without a version come with the toolkit's headers alone.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

// Adds the libraries in the folder to the search.
void look_in(const std::string& folder, NvrtcSearch* search) {
  for (const char* name : kNames) {
    const std::string path = folder + "/" + name;
    if (exists(path)) search->candidates.push_back(path);
  }
}

void look_in_toolkit(const std::string& root, NvrtcSearch* search) {
  if (root.empty()) return;
  search->places.push_back(root);
  for (const char* folder :
       {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"}) {
    look_in(root + folder, search);
  }
}

// The nvidia packages: one for all since CUDA 13, one for each library before.
void look_in_packages(const std::string& site_packages, NvrtcSearch* search) {
  search->places.push_back(site_packages);
  look_in(site_packages + "/nvidia/cu13/lib", search);
  look_in(site_packages + "/nvidia/cuda_nvrtc/lib", search);
}

void look_in_environment(const std::string& prefix, NvrtcSearch* search) {
  if (prefix.empty()) return;
  std::vector<std::string> pythons = matching(prefix + "/lib", "python3");
  if (pythons.empty()) search->places.push_back(prefix + "/lib/python3*");
  for (const std::string& python : pythons) {
    look_in_packages(python + "/site-packages", search);
  }
}

// The site-packages folder that holds this library, if one does.
std::string own_site_packages() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&nvrtc_search), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  constexpr std::string_view kFolder = "/site-packages/";
  const std::string path = info.dli_fname;
  const std::size_t at = path.rfind(kFolder);
  return at == std::string::npos ? "" : path.substr(0, at + kFolder.size() - 1);
}

// The prefix of the first python3 on the PATH: /opt/venv of /opt/venv/bin/python3.
std::string python_prefix() {
  const std::string path = environment("PATH");
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (!folder.empty() && access((folder + "/python3").c_str(), X_OK) == 0) {
      return folder_of(folder);
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::vector<std::string> matching(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> paths;
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return paths;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name.substr(0, prefix.size()) == prefix) paths.push_back(folder + "/" + entry->d_name);
  }
  closedir(directory);
  std::sort(paths.begin(), paths.end());
  return paths;
}

NvrtcSearch nvrtc_search() {
  NvrtcSearch search;
  if (const std::string forced = environment("STROBE_NVRTC"); !forced.empty()) {
    search.candidates.push_back(forced);
    search.places.push_back("STROBE_NVRTC=" + forced);
    return search;
  }
  search.places.emplace_back("the loader's path");
  for (const char* name : kNames) search.candidates.emplace_back(name);
  look_in_toolkit(environment("CUDA_HOME"), &search);
  look_in_toolkit(environment("CUDA_PATH"), &search);
  look_in_toolkit("/usr/local/cuda", &search);
  if (const std::string own = own_site_packages(); !own.empty()) look_in_packages(own, &search);
  look_in_environment(environment("VIRTUAL_ENV"), &search);
  look_in_environment(environment("CONDA_PREFIX"), &search);
  look_in_environment(python_prefix(), &search);
  return search;
}

}  // namespace strobe::jit
