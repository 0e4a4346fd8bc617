#include "cli/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <set>

#include "base/error.h"
#include "cli/build_id.h"
#include "cli/launch_hosts.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/train.h"
#include "cli/usage_error.h"
#include "comm/control/socket.h"
#include "comm/error.h"
#include "launch/agent.h"
#include "launch/copies_folder.h"
#include "launch/layouts_ahead.h"
#include "plan/plan.h"
#include "plan/smaller_layout.h"
#include "spec/layout/layout_toml.h"
#include "spec/run/async_check.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

const char* variable_of_process(const char* name) { return std::getenv(name); }

struct LaunchSettings {
  bool processes = false, mpirun = false;
  int restarts = 10, spares = 0, slots = 0, stopped_code = 0;
  double wait = 600;
  std::string on_fault = "restart,spare,shrink,wait", hosts, host, remote, memory = "/dev/shm";
};

const std::set<std::string>& own_options() {
  static const std::set<std::string> kOwn{"--processes", "--mpirun", "--restarts",     "--spares",
                                          "--slots",     "--wait",   "--on-fault",     "--hosts",
                                          "--host",      "--remote", "--stopped-code", "--memory"};
  return kOwn;
}

// What the user wrote after `launch`, as words again; of launch's own options those that `keeps` names, and all of
// train's but what belongs to the first epoch alone, or is said anew for each.
std::vector<std::string> words_of(const CLI::App& command, const std::function<bool(const std::string&)>& keeps) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || !keeps(name)) continue;
    if (option->get_expected_min() == 0 && option->get_expected_max() == 0) {  // a flag
      words.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) {
      if (!option->get_positional()) words.push_back(name);
      words.push_back(value);
    }
  }
  return words;
}

std::vector<OnFault> rules_of(const std::string& list) {
  std::vector<OnFault> rules;
  std::istringstream in(list);
  for (std::string name; std::getline(in, name, ',');) {
    const auto rule = on_fault_of(name);
    if (!rule || std::ranges::find(rules, *rule) != rules.end())
      refuse(fmt::format("--on-fault {}: '{}' is no rule, or is there twice", list, name),
             "list some of restart, spare, shrink and wait, in the order in which they are to be tried");
    rules.push_back(*rule);
  }
  return rules;
}

std::vector<std::string> under_mpirun(int ranks, const LaunchHosts& hosts, int slots) {
  std::vector<std::string> words{"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
  if (::geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  if (!hosts.names.empty()) {
    std::string list;
    for (const std::string& name : hosts.names) list += fmt::format("{}{}:{}", list.empty() ? "" : ",", name, slots);
    words.insert(words.end(), {"--host", list});
  }
  return words;
}

RankKind kind_of(const LaunchSettings& s, const LaunchHosts& hosts) {
  if (s.processes && s.mpirun) refuse("--processes and --mpirun are both given", "give one of them");
  if (s.mpirun) return RankKind::mpirun;
  return s.processes || hosts.names.size() > 1 ? RankKind::processes : RankKind::threads;
}

// How many ranks this host can have: as told, or its part of them all, and on a host alone the spares too.
int slots_of(const LaunchSettings& s, RankKind kind, const LaunchHosts& hosts, int ranks) {
  if (kind != RankKind::processes) return 1;
  const int count = std::max<int>(1, static_cast<int>(hosts.names.size()));
  if (s.slots > 0) return s.slots;
  if (count == 1) return ranks + s.spares;
  const int working = count - s.spares;
  if (working < 1)
    refuse(fmt::format("--spares {} of {} hosts leave none to train", s.spares, count), "name more --hosts");
  if (ranks % working != 0)
    refuse(fmt::format("{} ranks do not divide over {} hosts", ranks, working),
           "give --slots, the ranks that each host can have, or another layout");
  return ranks / working;
}

// What is left after the most likely losses: of a host, or of a rank; then of two, and so on.
void prepare_layouts(LayoutsAhead& layouts, int ranks, int hosts, int slots) {
  constexpr int kMost = 8;
  const int all = std::max(1, hosts) * slots, lost = hosts > 1 ? slots : 1;
  for (int left = all - lost, count = 0; left > 0 && count < kMost; left -= lost) {
    if (left >= ranks) continue;  // spares suffice
    layouts.prepare(left);
    ++count;
  }
}

// For copies of the state in this host's memory; none: they are off, or there is no place for them, which is told.
std::unique_ptr<CopiesFolder> copies_folder(const OrderedTraining& training, const LaunchSettings& s, RankKind kind,
                                            const LaunchHosts& hosts) {
  if (training.spec.train.copy_every == 0) return nullptr;
  try {
    if (kind == RankKind::mpirun && hosts.names.size() > 1)
      throw EnvironmentError("ranks that mpirun starts on several hosts have no agent on each; use --processes");
    return std::make_unique<CopiesFolder>(s.memory, training.folder);
  } catch (const EnvironmentError& error) {
    fmt::print(stderr, "lockstep: no copies of the state in memory: {}\n", error.what());
    return nullptr;
  }
}

AgentOptions options_of(const CLI::App& command, const OrderedTraining& training, const LaunchSettings& s,
                        const LaunchHosts& hosts, RankKind kind, const CopiesFolder* copies,
                        const std::atomic<bool>& stop, bool again) {
  if (s.spares > 0 && kind != RankKind::processes)
    refuse("--spares is for ranks that are processes", "add --processes, or leave it out");
  const int slots = slots_of(s, kind, hosts, training.ranks);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto of_training = [&command](bool layout) {
    return words_of(command, [layout](const std::string& name) {
      return !own_options().contains(name) && name != "--overwrite" && name != "--resume" &&
             (layout || (name != "--layout" && name != "--ranks"));
    });
  };
  const bool overwrites = command.count("--overwrite") > 0 && !again;

  // Of which layouts workers may die while others go on.
  const auto workers = [kind, spec = training.spec](const LaunchLayout& layout) -> LaunchWorkers {
    if (kind != RankKind::processes) return {};
    RunSpec of = spec;
    if (!layout.text.empty()) of.layout = parse_layout(layout.text);
    if (!why_workers_may_not_die(of).empty()) return {};
    return {.count = static_cast<int>(of.layout.dp), .line = static_cast<int>(of.layout.line())};
  };

  const std::string copies_at = copies ? copies->path().string() : "";
  const auto words = [=, with_layout = of_training(true), without_layout = of_training(false),
                      folder = training.folder.string()](const EpochOrder& order) {
    std::vector<std::string> all =
        kind == RankKind::mpirun ? under_mpirun(order.layout.ranks, hosts, slots) : std::vector<std::string>{};
    all.insert(all.end(), {program, "train"});
    if (!order.layout.text.empty() && parse_layout(order.layout.text).ranks() != order.layout.ranks)
      throw CommError(fmt::format("an order of {} ranks in the layout {}", order.layout.ranks, order.layout.text));
    const auto& rest = order.layout.text.empty() ? with_layout : without_layout;
    all.insert(all.end(), rest.begin(), rest.end());
    if (!order.layout.text.empty()) all.insert(all.end(), {"--layout", order.layout.text});
    if (!training.names_folder) all.insert(all.end(), {"--out", folder});
    if (!copies_at.empty()) all.insert(all.end(), {"--copies", copies_at});
    if (workers(order.layout).count > 0) all.push_back("--apart");
    if (order.resumes)
      all.insert(all.end(), {"--resume", "auto"});
    else if (overwrites)
      all.push_back("--overwrite");
    return all;
  };

  const auto layouts =
      std::make_shared<LayoutsAhead>([spec = training.spec, memory = available_memory(device_of(training.spec)),
                                      slots](int there) -> std::optional<LaunchLayout> {
        const std::int64_t of_rank = device_of(spec) == Device::cuda ? memory : memory / std::max(1, slots);
        const auto layout = smaller_layout(spec, there, of_rank);
        if (!layout) return std::nullopt;
        return LaunchLayout{.ranks = static_cast<int>(layout->ranks()), .text = to_text(*layout)};
      });
  const std::vector<OnFault> rules = rules_of(s.on_fault);
  if (kind == RankKind::processes && std::ranges::find(rules, OnFault::shrink) != rules.end())
    prepare_layouts(*layouts, training.ranks, static_cast<int>(hosts.names.size()), slots);

  AgentOptions options{
      .folder = training.folder,
      .kind = kind,
      .copies = copies_at,
      .command = words,
      .lead = {.plan = {.wanted = {.ranks = training.ranks},
                        .one_process = kind != RankKind::processes,
                        .rules = rules,
                        .layouts = [layouts](int there) { return layouts->get(there); }},
               .most_restarts = s.restarts,
               .resumes = training.resumes,
               .wait_seconds = s.wait,
               .steps = training.spec.train.steps,
               .stopped_code = s.stopped_code,
               .workers = workers},
      .hosts = kind == RankKind::processes ? hosts.names : std::vector<std::string>{},
      .agent = kind == RankKind::processes ? hosts.mine : 0,
      .facts = {.name = hosts.names.empty() ? control::host_name() : hosts.names[static_cast<std::size_t>(hosts.mine)],
                .address = "127.0.0.1",
                .slots = slots},
      .version = fmt::format("{} ({})", LOCKSTEP_VERSION, build_id()),
      .stalls = {.unseen = std::max(120.0, training.spec.run.deadline)},
      .stop = stop,
      .tell = [](const std::string& message) { fmt::print(stderr, "lockstep: {}\n", message); }};
  if (!s.remote.empty() && hosts.by_scheduler)
    refuse("--remote is given where the scheduler starts the other hosts' agents", "leave it out");
  if (!s.remote.empty() && options.hosts.empty()) refuse("--remote is given without --hosts", "list the hosts");
  if (!s.remote.empty())
    options.remote = [=,
                      others = words_of(command,
                                        [](const std::string& name) {
                                          return name != "--remote" && name != "--host" && name != "--resume" &&
                                                 name != "--overwrite";
                                        }),
                      folder = std::filesystem::current_path().string()](int agent) {
      const std::string& host = hosts.names[static_cast<std::size_t>(agent)];
      std::vector<std::string> all{program, "launch"};
      all.insert(all.end(), others.begin(), others.end());
      all.insert(all.end(), {"--host", host});
      if (training.resumes) all.insert(all.end(), {"--resume", "auto"});
      if (overwrites) all.push_back("--overwrite");
      return remote_command(s.remote, host, all, folder);
    };
  return options;
}

int run_launch(const CLI::App& command, const TrainingOrder& order, const LaunchSettings& s) {
  OrderedTraining training = order();
  if (launched_as_one_of_many())
    throw UserError(ExitCode::usage, "launch starts the ranks itself, and was started as one of many",
                    "leave out mpirun or torchrun and give launch --processes");
  if (training.resumes && !training.resumes_own)
    throw UserError(ExitCode::usage, "launch resumes a run in its own folder, and --resume names another",
                    fmt::format("copy that checkpoint by `lockstep train --resume OTHER --out {}`, which saves at the "
                                "first Ctrl-C, then launch with --resume",
                                training.folder.string()));
  const int again = times_queued_again(variable_of_process);
  if (again > 0 && !training.resumes)
    fmt::print(stderr, "lockstep: the job was queued again (SLURM_RESTART_COUNT={}): the run resumes in {}\n", again,
               training.folder.string());
  training.resumes = training.resumes || again > 0;
  const std::atomic<bool>& stop = listen_for_signals(training.stop_signals);
  const LaunchHosts hosts = launch_hosts(s.hosts, s.host, variable_of_process);
  const RankKind kind = kind_of(s, hosts);
  if (kind == RankKind::mpirun && hosts.by_scheduler)
    refuse("--mpirun under srun would start an mpirun on every node",
           "start launch without srun, in the job's script, or with --processes in place of --mpirun");
  const std::unique_ptr<CopiesFolder> copies = copies_folder(training, s, kind, hosts);
  return keep_running(options_of(command, training, s, hosts, kind, copies.get(), stop, again > 0));
}

}  // namespace

void add_launch(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<LaunchSettings>();
  CLI::App* command = app.add_subcommand("launch", "Train, and continue after a fault");
  command->footer(
      "Takes what train takes. Ranks that die or hang start again from the newest state; the run ends with the bits\n"
      "of one that never failed. --on-fault says what is tried, in which order: the same ranks again (restart), a\n"
      "spare in the place of the one that failed (spare), fewer ranks (shrink), waiting for hosts (wait). Three\n"
      "faults in a row without a new step end the run, since restarting does not help there. Mistakes of the run\n"
      "file or its inputs end it at once.\n\n"
      "With --hosts, one launch per host keeps the ranks of that host; they find each other through the run folder,\n"
      "which all must see. --remote starts the others from this one. Under Slurm, srun starts one per node; a job\n"
      "that was queued again resumes (docs/cluster.md).\n\n"
      "Examples: lockstep launch my.toml --out runs/a --set train.save_every=50\n"
      "          lockstep launch my.toml --out runs/a --ranks 4 --processes --spares 1\n"
      "          lockstep launch my.toml --out /shared/a --ranks 16 --hosts node[1-4] --remote 'ssh {host}'");
  const TrainingOrder order = add_training_order(*command);
  command->add_flag("--processes", settings->processes, "Start each rank as a process [threads of one]");
  command->add_flag("--mpirun", settings->mpirun, "Start each rank as a process, by mpirun");
  command->add_option("--restarts", settings->restarts, "End the run after this many restarts [10]")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
  command->add_option("--on-fault", settings->on_fault, "What is tried after a fault [restart,spare,shrink,wait]")
      ->type_name("LIST");
  command
      ->add_option("--spares", settings->spares,
                   "Hosts, or on one host processes, that take the place of others that fail [0]")
      ->check(CLI::Range(0, 4096).description(""))
      ->type_name("N");
  command->add_option("--wait", settings->wait, "Seconds to wait for lost hosts before the run ends [600]")
      ->check(CLI::Range(0.0, 1e7).description(""))
      ->type_name("S");
  command->add_option("--hosts", settings->hosts, "The hosts of the run, as a1,a2 or a[1-4]")->type_name("LIST");
  command->add_option("--host", settings->host, "Which of them this one is [by its name]")->type_name("NAME");
  command->add_option("--slots", settings->slots, "Ranks that this host can have [its part of them all]")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N");
  command->add_option("--remote", settings->remote, "Start the other hosts' agents with this, as in 'ssh {host}'")
      ->type_name("COMMAND");
  command
      ->add_option("--stopped-code", settings->stopped_code,
                   "Exit with this where a signal has ended the run before its last step [0]")
      ->check(CLI::Range(0, 125).description(""))
      ->type_name("N");
  command
      ->add_option("--memory", settings->memory,
                   "Folder in memory for copies of the state (train.copy_every) [/dev/shm]")
      ->type_name("DIR");
  command->callback([command, order, settings, &chosen] {
    if (is_scheduler_task(variable_of_process)) forget_scheduler_ranks();
    chosen = [command, order, settings] { return run_launch(*command, order, *settings); };
  });
}

}  // namespace lockstep
