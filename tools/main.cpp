// strobe: the command line.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "commands.h"

int main(int argc, char** argv) {
  using namespace strobe::tools;
  CLI::App app{"strobe: exact attention from the command line."};
  app.set_version_flag("--version", strobe::version());
  app.require_subcommand(0, 1);  // none: said below, after arguments that mean nothing
  app.footer(
      "Exit codes:\n"
      "  0  done\n"
      "  1  check: an output is beyond its error bound\n"
      "  2  the request is at fault: an option, a file, or a problem that Strobe refuses\n"
      "  3  the request is good but failed: memory, disk, or a defect in Strobe\n\n"
      "strobe COMMAND --help describes a command, with examples.");

  const Command commands[] = {
      add_info(app),  add_run(app),     add_check(app),  add_explain(app),
      add_trace(app), add_emulate(app), add_warmup(app),
#ifdef STROBE_TOOLS_BENCH
      add_bench(app),
#endif
  };

  try {
    app.parse(argc, argv);
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    fmt::print(stderr, "strobe: no command is given; strobe --help lists them\n");
    return kUsage;
  } catch (const CLI::ParseError& error) {  // --help and --version arrive here too
    return app.exit(error) == 0 ? kOk : kUsage;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "strobe: out of memory. Try a smaller batch, fewer heads or a shorter sequence.\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "strobe: a defect in strobe: {}\n", error.what());
  }
  return kFailed;
}
