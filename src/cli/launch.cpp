#include "cli/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/train.h"
#include "launch/agent.h"

namespace lockstep {

namespace {

struct LaunchSettings {
  bool processes = false;
  int restarts = 10;
};

// What the user wrote after `launch`, less launch's own options and what belongs to the first try alone.
std::vector<std::string> training_arguments(const CLI::App& command) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--processes" || name == "--restarts" || name == "--overwrite" ||
        name == "--resume")
      continue;
    if (option->get_expected_min() == 0) {  // a flag
      arguments.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) {
      if (!option->get_positional()) arguments.push_back(name);
      arguments.push_back(value);
    }
  }
  return arguments;
}

std::vector<std::string> under_mpirun(int ranks) {
  std::vector<std::string> words{"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
  if (::geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  return words;
}

int run_launch(const CLI::App& command, const TrainingOrder& order, const LaunchSettings& s) {
  const OrderedTraining training = order();
  if (launched_as_one_of_many())
    throw UserError(ExitCode::usage, "launch starts the ranks itself, and was started as one of many",
                    "leave out mpirun or torchrun and give launch --processes");
  if (training.resumes && !training.resumes_own)
    throw UserError(ExitCode::usage, "launch resumes a run in its own folder, and --resume names another",
                    fmt::format("copy that checkpoint by `lockstep train --resume OTHER --out {}`, which saves at the "
                                "first Ctrl-C, then launch with --resume",
                                training.folder.string()));
  const std::atomic<bool>& stop = listen_for_signals(training.stop_signals);
  std::vector<std::string> arguments = training_arguments(command);
  if (!training.names_folder) arguments.insert(arguments.end(), {"--out", training.folder.string()});
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return keep_running({.folder = training.folder,
                       .command =
                           [&](int restarts) {
                             std::vector<std::string> words =
                                 s.processes ? under_mpirun(training.ranks) : std::vector<std::string>{};
                             words.insert(words.end(), {program, "train"});
                             words.insert(words.end(), arguments.begin(), arguments.end());
                             if (restarts > 0 || training.resumes)
                               words.insert(words.end(), {"--resume", "auto"});
                             else if (command.count("--overwrite") > 0)
                               words.push_back("--overwrite");
                             return words;
                           },
                       .ranks = training.ranks,
                       .most_restarts = s.restarts,
                       .stop = stop,
                       .tell = [](const std::string& message) { fmt::print(stderr, "lockstep: {}\n", message); }});
}

}  // namespace

void add_launch(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<LaunchSettings>();
  CLI::App* command = app.add_subcommand("launch", "Train, and start the ranks again after a fault");
  command->footer(
      "Takes what train takes. Ranks that die, or are stopped for 5 s, start again from the newest checkpoint; the "
      "run\n"
      "ends with the bits of one that never failed. Three faults in a row without a new step end it, since\n"
      "restarting does not help there. Mistakes of the run file or its inputs end it at once.\n\n"
      "Examples: lockstep launch my.toml --out runs/a --set train.save_every=50\n"
      "          lockstep launch my.toml --out runs/a --ranks 4 --processes");
  const TrainingOrder order = add_training_order(*command);
  command->add_flag("--processes", settings->processes, "Start each rank as a process, by mpirun [threads of one]");
  command->add_option("--restarts", settings->restarts, "End the run after this many restarts [10]")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
  command->callback([command, order, settings, &chosen] {
    chosen = [command, order, settings] { return run_launch(*command, order, *settings); };
  });
}

}  // namespace lockstep
