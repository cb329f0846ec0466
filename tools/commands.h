// The subcommands of `strobe`. Each file cmd_*.cpp adds one to the command line.
#ifndef STROBE_TOOLS_COMMANDS_H_
#define STROBE_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <strobe/strobe.hpp>

namespace strobe::tools {

// What the process returns; docs/cli.md and `strobe --help` say the same.
enum ExitCode {
  kOk = 0,
  kOutOfBound = 1,  // `check` found an output beyond its error bound
  kUsage = 2,       // the request was at fault: an option, a file, a problem that Strobe refuses
  kFailed = 3       // the request was good but could not be carried out: memory, disk, a defect
};

struct Command {
  CLI::App* app;
  std::function<int()> run;  // called once, after the options are parsed; returns an ExitCode
};

Command add_info(CLI::App& parent);
Command add_run(CLI::App& parent);
Command add_check(CLI::App& parent);
Command add_emulate(CLI::App& parent);
Command add_explain(CLI::App& parent);
Command add_trace(CLI::App& parent);
Command add_warmup(CLI::App& parent);
#ifdef STROBE_TOOLS_BENCH
Command add_bench(CLI::App& parent);
#endif

// Prints "strobe COMMAND: message" to stderr and returns `code`.
int report(const CLI::App& command, ExitCode code, const std::string& message);
// The same for a refusal or failure of the library.
int report(const CLI::App& command, const Status& status);

// A counter on one line of stderr, for commands that take a while. Silent unless stderr is a
// terminal.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // wipes the line
  void show(std::size_t done, std::size_t total, const std::string& detail = {});

 private:
  std::string what_;
  bool terminal_;
};

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_COMMANDS_H_
