#include "cli/compare.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cli/agree.h"
#include "cli/compare_layouts.h"
#include "cli/compare_levers.h"
#include "cli/compare_sync.h"
#include "cli/compare_view.h"
#include "cli/progress_line.h"
#include "cli/same_start.h"
#include "cli/signals.h"
#include "cli/start_ranks.h"
#include "cli/terminal.h"
#include "cli/usage_error.h"
#include "comm/mpi/world.h"
#include "plan/comparison.h"
#include "plan/step_prediction.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

bool on_gpu(const RunSpec& run) { return device_of(run) == Device::cuda; }

ComparisonOptions options_of(const CompareSettings& s) {
  return {
      .steps = s.steps, .rounds = s.brief ? 1 : std::min(s.steps, ComparisonOptions{}.rounds), .forecasts = !s.brief};
}

// Tries them all, and shows on a terminal which it is trying.
Comparison try_layouts(const RunSpec& run, const std::vector<LayoutSpec>& layouts, ComparisonOptions options,
                       bool shows) {
  const std::atomic<bool>& stop = listen_for_signals();
  ProgressLine progress(layouts.size() * static_cast<std::size_t>(options.rounds), shows);
  options.wants_stop = [&] { return stop.load(); };
  options.begins = [&](const LayoutSpec& layout) { progress.show(to_text(layout)); };
  return compare_costs(run, layouts, options);
}

void print(const CompareSettings& s, const RunSpec& run, const Comparison& comparison, const CompareAsked& asked) {
  if (s.json)
    fmt::print("{}\n", compare_json(run, comparison, asked).dump(2));
  else
    fmt::print("{}", compare_text(run, comparison, asked,
                                  s.markdown                    ? CompareStyle::markdown
                                  : takes_colour(STDOUT_FILENO) ? CompareStyle::colour
                                                                : CompareStyle::plain));
}

// `prints`: of processes, rank 0 does.
int report(const CompareSettings& s, const RunSpec& run, const Comparison& comparison, CompareAsked& asked,
           bool prints) {
  if (comparison.layouts.empty() && !comparison.left_out.empty() && !comparison.stopped) {
    const UserError none(ExitCode::does_not_fit,
                         fmt::format("none of the layouts fits: {}", comparison.left_out.front().why),
                         "use fewer ranks, a smaller model, more micro-batches or a shorter data.seq");
    if (prints) throw none;
    return static_cast<int>(none.code());
  }
  asked.steps = s.steps;
  asked.brief = s.brief;
  if (prints) print(s, run, comparison, asked);
  return static_cast<int>(comparison.ok() ? ExitCode::done : ExitCode::check_failed);
}

// Before anything is timed.
void require_machines(const RunSpec& run, const std::vector<LayoutSpec>& layouts,
                      const std::optional<MachineSpec>& machine) {
  for (const LayoutSpec& layout : layouts) {
    refuse_unflushed(layout);
    if (machine) require_machine(laid_out(run, layout), *machine);
  }
}

int compare_threads(const CompareSettings& s, RunSpec run, const std::optional<MachineSpec>& machine) {
  CompareAsked asked{.scale = rank_counts(s.scale), .cores = usable_cores()};
  const std::vector<NamedLayout> named = named_layouts(s);
  asked.machine = machine;
  asked.ranks = s.ranks > 0              ? s.ranks
                : !asked.scale.empty()   ? *asked.scale.rbegin()
                : !named.empty()         ? named.front().layout.ranks()
                : run.layout.ranks() > 1 ? run.layout.ranks()
                : on_gpu(run)            ? 1
                                         : kUsualRanks;
  if (!asked.scale.empty()) {
    asked.scale.insert({1, asked.ranks});           // efficiency is against one rank
    if (run.run.threads == 0) run.run.threads = 1;  // one rank is to have what each of many has
  }
  ComparisonOptions options = options_of(s);
  if (!s.link.empty()) options.link = asked.link = parse_link(s.link, "--link");
  if (on_gpu(run) && options.link)
    refuse("--link on a GPU: a simulated link is between ranks on the cpu",
           "use --set run.device=cpu, or leave it out");
  options.machine = machine ? &*machine : nullptr;
  options.forecasts = options.forecasts && !options.link && !on_gpu(run);
  const std::vector<LayoutSpec> layouts =
      compared_layouts(s, named, run, {.count = s.ranks, .told = fmt::format("--ranks {}", asked.ranks)}, asked);
  require_machines(run, layouts, machine);
  asked.layouts = layouts.size();
  return report(s, run, try_layouts(run, layouts, options, true), asked, true);
}

// What all processes must have been told alike, beside the run.
NamedValues told_alike(const CompareSettings& s, const std::vector<NamedLayout>& named) {
  std::string layouts;
  for (const NamedLayout& one : named) layouts += (layouts.empty() ? "" : " ") + to_text(one.layout);
  return {{"layouts", layouts},
          {"--ranks", fmt::format("{}", s.ranks)},
          {"--steps", fmt::format("{}", s.steps)},
          {"--brief", s.brief ? "given" : "not given"},
          {"--machine", s.machine.name.empty() ? "not given" : "given"}};
}

// Under a launcher: the processes are the ranks.
int compare_processes(const CompareSettings& s, RunSpec run, const std::optional<MachineSpec>& machine) {
  if (!s.scale.empty())
    refuse("--scale under a launcher, whose processes are all ranks there are", "leave --scale out");
  if (!s.link.empty())
    refuse("--link under a launcher: a simulated link is between ranks that are threads", "start without one");
  const std::vector<NamedLayout> named = named_layouts(s);
  const EmptyFolderRemoved control_folder(run.run.out);  // processes meet over a file there (cli/launch_processes.h)
  Launch launch(run, "compare", false, told_alike(s, named), Launch::Layout::any);
  const std::int64_t processes = launch.processes();
  const std::string option = MpiWorld::launched() ? "-n " : "as many processes, ";
  CompareAsked asked{.ranks = processes, .cores = usable_cores(), .ranks_here = launch.ranks_here()};
  Comparison comparison;
  bool prints = false;
  launch.run([&](const RankPlace& place) {
    prints = place.ranks.rank() == 0;
    const TextExchange exchange = texts_over(place.ranks);
    std::vector<LayoutSpec> layouts;
    try {
      if (s.ranks > 0 && s.ranks != processes)
        refuse(fmt::format("--ranks {} under a launcher, whose ranks are its {} processes", s.ranks, processes),
               "leave --ranks out");
      layouts = compared_layouts(s, named, run,
                                 {.count = processes,
                                  .told = fmt::format("{} processes", processes),
                                  .option = option,
                                  .other = "use " + option},
                                 asked);
      laid_out_runs(run, layouts);
      require_machines(run, layouts, machine);
    } catch (const UserError& error) {  // of every rank
      require_none(error.what(), exchange, place.ranks.rank(), {.code = error.code(), .remedy = ""});
    }
    std::optional<RunData> data;
    read_same_data(data, run, place.ranks);
    const ComparedProcess process{.ranks = place.ranks,
                                  .data = *data,
                                  .connect = place.connect,
                                  .threads = place.threads,
                                  .ranks_here = launch.ranks_here()};
    ComparisonOptions options = options_of(s);
    options.forecasts = false;
    options.machine = machine ? &*machine : nullptr;
    options.process = &process;
    asked.layouts = layouts.size();
    asked.machine = machine;
    comparison = try_layouts(run, layouts, options, prints);
  });
  return report(s, run, comparison, asked, prints);
}

int compare(const CompareSettings& s) {
  if (s.levers) return compare_levers_of(s);
  if (!s.sync.empty()) return compare_sync_of(s);
  if (s.tokens > 0) refuse("--tokens without --sync: layouts learn the same from any number of them", "add --sync");
  RunArguments arguments = s.run;
  const std::optional<MachineSpec> machine = s.machine.read(arguments);
  if (!s.memory.empty())
    refuse("--memory without --levers: layouts are compared in what the machine has free", "add --levers");
  if (s.brief && !s.link.empty())
    refuse("--link with --brief: a link changes times alone, and --brief shows none", "leave one of them out");
  CompareSettings without = s;
  without.run = arguments;
  const RunSpec run = s.layouts.empty() && !s.list ? arguments.read() : arguments.read_for_any_layout();
  refuse_unflushed(run.layout);
  if (run.sync.takes_local_steps())
    refuse(fmt::format("sync.kind = \"{}\": replicas agree in some steps only, and single steps are compared",
                       name_of(run.sync.kind)),
           "use --set sync.kind=full, or compare --sync KEY=VALUE,.. in place of layouts");
  if (run.sync.is_asynchronous())
    refuse("sync.kind = \"async\": which worker does how much depends on the moment, and single steps are compared",
           "use --set sync.kind=full");
  if (run.sync.compress || run.sync.compress_weights || run.sync.compress_activations) refuse_compression();
  refuse_growing_mask(run);
  return launched_as_one_of_many() ? compare_processes(without, run, machine) : compare_threads(without, run, machine);
}

}  // namespace

void add_compare(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<CompareSettings>();
  CLI::App* command = app.add_subcommand("compare", "Train a few steps under many layouts and show what each costs");
  command->footer(
      "Ranks are threads of this process; under mpirun they are its processes, under torchrun its processes with a GPU "
      "each,\nand every layout has as many ranks. Without --layout: central, ddp without and with overlap, zero 1 to 3 "
      "with\n"
      "either grad_sync, zero 3 with reshard=never, hybrid where the ranks have a divisor, and where heads can be\n"
      "shared out so, tp over all ranks with sp=on and sp=off and, of four ranks or more, over each two; "
      "micro-batches\n"
      "are the run's. A layout that is named is whole: what it does not say has its default, and --set layout.KEY\n"
      "changes one key of each. Bytes by tag and messages are predicted on meta and measured, which must be\n"
      "equal; exit code 1: they are not. A layout that does not fit the machine is left out with a word.\n\n"
      "Step time, exposed time, bubble and tokens/s are predicted as well, before any layout runs: each rank's step "
      "on\n"
      "meta goes through a simulator whose times come from this machine's products, copies and messages and from some\n"
      "steps of one rank alone. They stand beside what was measured, and how far off they are is shown, not "
      "checked.\n\n"
      "--machine predicts times by a machine file (docs/choosing.md) in place of that calibration, and adds how well: "
      "the\n"
      "median and the worst error, what each layout differs from itself between rounds, and whether the three that "
      "are\n"
      "predicted to be fastest contain the fastest.\n\n"
      "--brief shows one table: each layout's last loss, the bytes of its fullest rank and the messages of its "
      "fullest\nsender, predicted and measured. Times are neither forecast nor shown.\n\n"
      "--link puts a simulated link between ranks that are threads: a message takes the latency for each step of its\n"
      "algorithm plus its bytes over the bandwidth, beside what the rank computes. Times are forecast for threads on "
      "the "
      "cpu\n"
      "without a link; on a GPU neither waits nor a pipeline's bubble are measured.\n\n"
      "--layouts FILE names layouts, one per line, as --layout does; '#' begins a comment. Without --ranks each has "
      "the "
      "ranks\n"
      "that it says, and they may differ; with it, dp is what its other axes leave of them.\n\n"
      "With --scale every layout also runs at these numbers of ranks, each with run.threads threads (1), at the same\n"
      "global batch; a number that does not divide it is left out with a word. Efficiency is against one rank, times\n"
      "the cores that the ranks have. Ctrl-C ends after the step and shows what has been measured.\n\n"
      "--levers compares levers that lower memory, in the run's own layout: none, each alone (micro-batches, ZeRO,\n"
      "recomputation, 16-bit state, offload of each kind) and the usual ones together. Bytes by tag on the device,\n"
      "the host and the disk, predicted and measured; bytes that move and are sent per step beside ceilings that are\n"
      "measured first; tokens/s relative to none. What does not fit, or takes more than --memory on a rank, is shown\n"
      "and not run.\n\n"
      "--sync compares techniques of [sync] with full synchronization, in the run's own layout: bytes and step, waits "
      "and\ntokens/s on the link of --link, predicted and measured, and with --tokens the loss that each comes to. "
      "Each is\nkeys of [sync] with commas between them; several have semicolons between them, or options of their "
      "own.\n\n"
      "Examples: lockstep compare --ranks 4\n"
      "          lockstep compare my.toml --ranks 8 --scale 1,2,4,8 --steps 10 --markdown\n"
      "          lockstep compare my.toml --ranks 4 --layout zero=2 --layout tp=2,zero=1\n"
      "          lockstep compare --layout dp=4 --layout tp=4 --brief --set precision.compute=fp64\n"
      "          lockstep compare my.toml --layouts layouts.txt --json\n"
      "          lockstep compare my.toml --ranks 4 --link 1GB/s,50us\n"
      "          lockstep compare my.toml --levers --memory 2GiB\n"
      "          lockstep compare my.toml --ranks 4 --link 100MB/s,1ms --sync 'compress=int8;kind=partial,every=16'\n"
      "          mpirun -n 4 lockstep compare my.toml\n"
      "          torchrun --no-python --nproc-per-node 8 lockstep compare my.toml --set run.device=cuda");
  settings->run.add_to(*command);
  CLI::Option* machine = settings->machine.add_to(*command);
  CLI::Option* ranks =
      command
          ->add_option(
              "--ranks", settings->ranks,
              fmt::format("All ranks; dp is what pp, cp and tp leave of them [those of the layout, or {} where "
                          "it has 1 and none is named]",
                          kUsualRanks))
          ->check(CLI::Range(1, kMostComparedThreads).description(""))
          ->type_name("N");
  CLI::Option* scale =
      command->add_option("--scale", settings->scale, "Numbers of ranks to run at as well, as in 1,2,4,8");
  scale->type_name("N,..");
  command
      ->add_option("--steps", settings->steps,
                   fmt::format("Steps that are timed under each layout, in three rounds whose first step is not [{}]",
                               settings->steps))
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  CLI::Option* layout =
      command
          ->add_option("--layout", settings->layouts,
                       "A whole layout in place of the usual ones, as in zero=3,shard=2; may be given several times")
          ->type_name("KEY=VALUE,..")
          ->allow_extra_args(false);
  CLI::Option* list = command
                          ->add_option("--layouts", settings->list,
                                       "A file of layouts, one per line as in dp=2,pp=2,zero=3; beside --layout")
                          ->type_name("FILE");
  CLI::Option* link =
      command
          ->add_option(
              "--link", settings->link,
              "A simulated link between ranks: its bandwidth and latency, as in 1GB/s,50us; times under it are "
              "measured, not predicted")
          ->type_name("RATE,TIME");
  CLI::Option* brief = command
                           ->add_flag("--brief", settings->brief,
                                      "One table: losses, bytes and messages, each predicted and measured, no times")
                           ->excludes(scale);
  CLI::Option* levers = command->add_flag("--levers", settings->levers,
                                          "Levers that lower memory, in the run's layout, in place of layouts");
  machine->excludes(link)->excludes(brief);
  CLI::Option* sync = command
                          ->add_option("--sync", settings->sync,
                                       "Techniques of [sync] beside full synchronization, in place of layouts; may be "
                                       "given several times")
                          ->type_name("KEY=VALUE,..;..")
                          ->allow_extra_args(false);
  for (CLI::Option* other : {ranks, scale, layout, list, link, brief, machine, sync}) levers->excludes(other);
  for (CLI::Option* other : {scale, list, brief, machine}) sync->excludes(other);
  command
      ->add_option("--tokens", settings->tokens,
                   "With --sync: train each on so many tokens, without the link, and show the loss")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}).description(""))
      ->type_name("N");
  command
      ->add_option("--memory", settings->memory,
                   "With --levers: bytes that a rank may take, as in 24GiB [its share of what is free]")
      ->type_name("SIZE");
  CLI::Option* json = command->add_flag("--json", settings->json, "Print everything that was measured, as JSON");
  command->add_flag("--markdown", settings->markdown, "Print the tables as markdown")->excludes(json);
  command->callback([settings, &chosen] { chosen = [settings] { return compare(*settings); }; });
}

}  // namespace lockstep
