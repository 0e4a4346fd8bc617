#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "cli/verify.h"

namespace lockstep {

namespace {

int fail(ExitCode code, const std::string& message) {
  fmt::print(stderr, "lockstep: {}\n", message);
  return static_cast<int>(code);
}

// What a usage error says, on one line.
std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

int run_app(int argc, char** argv) {
  CLI::App app("Lockstep trains language models across many processors, in any parallel layout, with the same result.",
               "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION);
  app.require_subcommand(1);
  std::function<int()> chosen;
  add_verify(app, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return fail(ExitCode::usage, one_line(error.what()) + "; try lockstep --help");
  } catch (const UserError& error) {
    return fail(error.code(), error.what());
  } catch (const EnvironmentError& error) {
    return fail(ExitCode::environment, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::environment, "out of memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::environment, fmt::format("internal error: {}", error.what()));
  }
}

}  // namespace lockstep
