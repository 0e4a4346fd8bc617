#include "cli/status.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "cli/status_text.h"
#include "cli/terminal.h"
#include "telemetry/run_status.h"

namespace lockstep {

namespace {

struct StatusSettings {
  std::string run;
  bool json = false, watch = false;
};

constexpr const char* kFromTheTop = "\033[H\033[2J";

void print_status(const StatusOfRun& status, const StatusSettings& s, bool first) {
  // A folder's name need not be UTF-8; what is not is replaced.
  using Json = nlohmann::ordered_json;
  if (s.json)
    fmt::print("{}\n", to_json(status).dump(s.watch ? -1 : 2, ' ', false, Json::error_handler_t::replace));
  else
    fmt::print("{}{}",
               !s.watch                     ? ""
               : on_terminal(STDOUT_FILENO) ? kFromTheTop
               : first                      ? ""
                                            : "\n",
               status_text(status));
}

int run_status(const StatusSettings& s) {
  RunReader reader(s.run);
  for (bool first = true;; first = false) {
    const StatusOfRun status = status_of(reader.update());
    print_status(status, s, first);
    // A reader of the pipe that has gone is no failure of this one (cli/app.cpp tells of others).
    if (std::fflush(stdout) != 0) break;
    if (!s.watch || status.state == RunState::ended || status.state == RunState::stopped) break;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_status(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<StatusSettings>();
  CLI::App* command = app.add_subcommand("status", "Show how a run is at this moment, and what every rank does");
  command->footer(
      "Of the run: its state, the epoch, restarts, hosts and their roles of `lockstep launch`, the last fault, whom it "
      "is\n"
      "put down to and what it cost, the goodput, and slow ranks. Of every rank: host, epoch, step, what it did last, "
      "and\n"
      "how long ago that was. It reads the run folder and changes nothing; a run without launch and one that is over "
      "have\n"
      "a status too. docs/monitoring.md explains each line.\n\n"
      "Examples: lockstep status runs/a\n"
      "          lockstep status runs/a --watch\n"
      "          lockstep status runs/a --json");
  command->add_option("run", settings->run, "Run folder")->required()->type_name("RUN");
  command->add_flag("--watch", settings->watch, "Print it anew every second until the run has stopped or ended");
  command->add_flag("--json", settings->json, "Print every field, as JSON; with --watch a line each time");
  command->callback([settings, &chosen] { chosen = [settings] { return run_status(*settings); }; });
}

}  // namespace lockstep
