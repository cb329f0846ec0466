// strobe info: what this build of the library can do here.
#include <fmt/format.h>

#include <memory>

#include "commands.h"

namespace strobe::tools {

Command add_info(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "info", "Print the CPU targets, devices, kernels with their overrides, and build options.");
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print JSON");
  app->footer("Example:\n  strobe info --json");
  return {app, [json] {
            fmt::print("{}\n", library_info(*json ? STROBE_JSON : STROBE_TEXT));
            return kOk;
          }};
}

}  // namespace strobe::tools
