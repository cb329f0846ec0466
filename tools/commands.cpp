#include "commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace strobe::tools {

int report(const CLI::App& command, ExitCode code, const std::string& message) {
  fmt::print(stderr, "strobe {}: {}\n", command.get_name(), message);
  return code;
}

int report(const CLI::App& command, const Status& status) {
  const bool refused =
      status.code() == STROBE_INVALID_ARGUMENT || status.code() == STROBE_UNSUPPORTED;
  return report(command, refused ? kUsage : kFailed,
                status.argument().empty()
                    ? status.message()
                    : fmt::format("{}: {}", status.argument(), status.message()));
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO)) {}

// "\r" returns to the start of the line, "\x1b[K" wipes from there to its end.
Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::show(std::size_t done, std::size_t total, const std::string& detail) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\x1b[K{} {}/{} {}", what_, done, total, detail);
  std::fflush(stderr);
}

}  // namespace strobe::tools
