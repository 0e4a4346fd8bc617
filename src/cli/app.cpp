#include "cli/app.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "cli/agree.h"
#include "cli/bench.h"
#include "cli/choose.h"
#include "cli/compare.h"
#include "cli/dashboard.h"
#include "cli/data.h"
#include "cli/doctor.h"
#include "cli/draw.h"
#include "cli/eval.h"
#include "cli/export.h"
#include "cli/generate.h"
#include "cli/inspect.h"
#include "cli/launch.h"
#include "cli/launched_rank.h"
#include "cli/metrics.h"
#include "cli/plan.h"
#include "cli/presets.h"
#include "cli/report.h"
#include "cli/schedule.h"
#include "cli/simulate.h"
#include "cli/start_ranks.h"
#include "cli/status.h"
#include "cli/tokenize.h"
#include "cli/train.h"
#include "cli/train_tokenizer.h"
#include "cli/usage_error.h"
#include "cli/verify.h"
#include "comm/mpi/world.h"

namespace lockstep {

namespace {

int fail(ExitCode code, const std::string& message) {
  std::fputs(fmt::format("lockstep: {}\n", message).c_str(), stderr);  // which nobody may be reading any more
  return static_cast<int>(code);
}

// Of a pipe: nobody can read what is written to standard output.
bool reader_has_gone() {
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// Whether its ranks are processes under a launcher; every other command runs in one process.
bool runs_on_ranks(const CLI::App& command) {
  const std::string& name = command.get_name();
  return name == "train" || name == "comm" || name == "machine" || name == "compare";
}

// An error that every process has found by itself.
int fail_alike(ExitCode code, const std::string& message) {
  return speaks_for_all() ? fail(code, message) : static_cast<int>(code);
}

// Refuses an option with an empty value, as from a variable that is not set: as a path it would be any folder or none.
// Text to generate from may be empty.
void refuse_empty(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_name();
      if (name == "--prompt" || name == "--tokens" || name == "--between" || option->get_expected_min() == 0) continue;
      for (const std::string& value : option->results())
        if (value.empty())
          throw UserError(ExitCode::usage, fmt::format("{} is empty", name), "give it a value, or leave it out");
    }
    refuse_empty(*command);
  }
}

// All processes of one mpirun run one command. Where they do not, those that join ranks are told which process never
// will, even if that only asks for help.
void stay_away_unless_on_ranks(const CLI::App& app) {
  if (!MpiWorld::launched()) return;
  std::string command;
  for (const CLI::App* at = &app; at; at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front())
    command += (command.empty() ? "" : " ") + at->get_name();
  if (!runs_on_ranks(chosen_command(app))) MpiWorld::will_not_join(command);
}

}  // namespace

int run_app(int argc, char** argv) {
  CLI::App app("Lockstep trains language models across many processors, in any parallel layout, with the same result.",
               "lockstep");
  app.set_version_flag("--version", "lockstep " + program_version());
  app.require_subcommand(0, 1);
  std::function<int()> chosen;
  add_train(app, chosen);
  add_launch(app, chosen);
  add_plan(app, chosen);
  add_simulate(app, chosen);
  add_choose(app, chosen);
  add_schedule(app, chosen);
  add_draw(app, chosen);
  add_generate(app, chosen);
  add_eval(app, chosen);
  add_export(app, chosen);
  add_tokenize(app, chosen);
  add_train_tokenizer(app, chosen);
  add_inspect(app, chosen);
  add_data(app, chosen);
  add_status(app, chosen);
  add_doctor(app, chosen);
  add_report(app, chosen);
  add_metrics(app, chosen);
  add_presets(app, chosen);
  add_bench(app, chosen);
  add_compare(app, chosen);
  add_verify(app, chosen);
  add_dashboard(app, chosen);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error of write, not a silent end
  try {
    app.parse(argc, argv);
    refuse_empty(app);
    if (!chosen) return fail_alike(ExitCode::usage, "no command given; try lockstep --help");
    stay_away_unless_on_ranks(app);
    if (launched_rank() > 0 && !runs_on_ranks(chosen_command(app))) return static_cast<int>(ExitCode::done);
    const int code = chosen();
    // Output that could not be written is a failure: a full disk must not look like success.
    // Whose reader has gone, as with `| head`, is not full. A command that has said so itself has exit code 5.
    if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code != static_cast<int>(ExitCode::environment))
      return fail(ExitCode::environment,
                  reader_has_gone()
                      ? "standard output was closed by its reader"
                      : "standard output could not be written; free space where it goes, or send it elsewhere");
    return code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      if (MpiWorld::launched()) MpiWorld::will_not_join("lockstep with --help or --version");
      return launched_rank() > 0 ? 0 : app.exit(error);
    }
    return fail_alike(ExitCode::usage, usage_error(app, error));
  } catch (const AllRefuse& refused) {
    return static_cast<int>(refused.code);
  } catch (const UserError& error) {
    // Only this process knows of a failure in its rank's own work, to which comm/processes/run_rank.h adds the rank's
    // name.
    const bool own = std::string_view(error.what()).starts_with(fmt::format("rank {}: ", launched_rank()));
    return own ? fail(error.code(), error.what()) : fail_alike(error.code(), error.what());
  } catch (const CommError& error) {
    // Of several processes, the one that knows the cause reports it.
    if (error.secondary() && launched_as_one_of_many()) return static_cast<int>(ExitCode::environment);
    return fail(ExitCode::environment, error.what());
  } catch (const EnvironmentError& error) {
    return fail(ExitCode::environment, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::environment, "out of memory; end other programs, or see `lockstep plan` for what needs less");
  } catch (const std::exception& error) {
    return fail(ExitCode::environment,
                fmt::format("internal error: {}; this is a fault of lockstep: please report it", error.what()));
  }
}

}  // namespace lockstep
