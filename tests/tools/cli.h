// Runs the command line as a user does.
#ifndef STROBE_TESTS_TOOLS_CLI_H_
#define STROBE_TESTS_TOOLS_CLI_H_

#include <sys/wait.h>

#include <cstdlib>

#include "file_util.h"

namespace strobe::tools {

struct CliResult {
  int code = -1;
  std::string out, err;
};

// strobe ARGUMENTS in a folder. `environment`: "NAME=value " words before the command.
inline CliResult cli(const std::filesystem::path& folder, const std::string& arguments,
                     const std::string& environment = "") {
  const std::string out = folder / "stdout.txt", err = folder / "stderr.txt";
  const std::string line = "cd '" + folder.string() + "' && " + environment + " '" STROBE_CLI "' " +
                           arguments + " >'" + out + "' 2>'" + err + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
}

// Expects exit code 2 and a message that holds `text`.
inline void expect_usage_fault(const std::filesystem::path& folder, const std::string& arguments,
                               const std::string& text) {
  const CliResult result = cli(folder, arguments);
  EXPECT_EQ(result.code, 2) << arguments << "\n" << result.err;
  EXPECT_NE(result.err.find(text), std::string::npos) << arguments << "\n" << result.err;
}

}  // namespace strobe::tools

#endif  // STROBE_TESTS_TOOLS_CLI_H_
