#include "cli/train.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <csignal>
#include <memory>
#include <utility>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/manifest.h"
#include "cli/apart.h"
#include "cli/rank_log.h"
#include "cli/resume_from.h"
#include "cli/run_arguments.h"
#include "cli/same_start.h"
#include "cli/signals.h"
#include "cli/silent_rank.h"
#include "cli/start_notes.h"
#include "cli/start_ranks.h"
#include "cli/train_view.h"
#include "comm/control/socket.h"
#include "comm/gather_texts.h"
#include "plan/gathered_room.h"
#include "plan/machine.h"
#include "plan/placement_warning.h"
#include "plan/plan.h"
#include "plan/plan_file.h"
#include "plan/snapshot_place.h"
#include "plan/step_prediction.h"
#include "spec/run/lora_check.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"
#include "tensor/cuda/device.h"
#include "train/host_values.h"
#include "train/link_probe.h"
#include "train/loop.h"
#include "train/pinning.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/tuning.h"
#include "train/update_choice.h"

namespace lockstep {

namespace {

struct TrainSettings {
  RunArguments run;
  LayoutArguments layout;
  std::string out, resume, machine, copies;
  bool resumes = false, overwrite = false, apart = false;
  TrainViewOptions view;
};

// The run folder that --resume names or is inside of: RUN, RUN/checkpoints or RUN/checkpoints/step-N.
std::optional<std::filesystem::path> run_folder_of(const std::filesystem::path& named) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(named, ignored).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "RUN/"
  for (int up = 0; up < 3; ++up, folder = folder.parent_path())
    if (std::filesystem::exists(folder / "run.toml", ignored)) return up == 0 ? named : folder;
  return std::nullopt;
}

RunSpec spec_of(const TrainSettings& s) {
  RunArguments arguments = s.run;
  arguments.takes_auto = true;
  if (s.resumes) arguments.resumed = s.resume == "auto" && !s.out.empty() ? s.out : s.resume;
  // To resume from a folder needs no run file: the run folder has its own, and is where training continues. A
  // checkpoint by itself holds a copy of it, but not the place.
  std::optional<std::filesystem::path> own;
  if (arguments.file.empty() && s.resumes && s.resume == "auto") {
    if (!s.out.empty()) own = run_folder_of(s.out);  // else the run begins there, with the built-in example
    if (own) arguments.file = (*own / "run.toml").string();
  } else if (arguments.file.empty() && s.resumes) {
    own = run_folder_of(s.resume);
    if (own) {
      arguments.file = (*own / "run.toml").string();
    } else if (std::error_code ignored; std::filesystem::exists(s.resume, ignored)) {
      const Checkpoint checkpoint = require_checkpoint(s.resume, [](const auto&, const std::string&) {});
      arguments.text = checkpoint.progress().run_file;
      arguments.file = (checkpoint.path() / kManifestName).string();
      if (s.out.empty())
        throw UserError(ExitCode::usage, fmt::format("{} is not in a run folder", checkpoint.path().string()),
                        "name the folder that the run continues in, as in --out runs/continued");
    } else {
      throw UserError(ExitCode::checkpoint, fmt::format("there is no folder {}", quote_text(s.resume)),
                      "name a run folder, its checkpoints folder or one step-… folder");
    }
  }
  RunSpec spec = s.layout.read(arguments);
  if (own) spec.run.out = own->string();
  if (!s.out.empty()) spec.run.out = s.out;
  if (!s.machine.empty()) {
    const auto place = machine_place(s.machine, "");
    spec.run.machine = place ? *place : find_machine(s.machine).name;  // which names those that there are
  }
  return spec;
}

// A run resumes in its own folder; what another folder holds is not mixed with it.
RunFolder::Existing existing_of(const TrainSettings& s, const RunSpec& spec) {
  std::error_code ignored;
  if (s.overwrite) return RunFolder::Existing::replace;
  if (!s.resumes) return RunFolder::Existing::refuse;
  const std::filesystem::path from = s.resume, out = spec.run.out;
  const bool own = s.resume == "auto" || std::filesystem::equivalent(from, out, ignored) ||
                   std::filesystem::equivalent(from, out / "checkpoints", ignored) ||
                   std::filesystem::equivalent(from / "..", out / "checkpoints", ignored);
  return own ? RunFolder::Existing::keep : RunFolder::Existing::refuse;
}

// Bytes in use on a GPU beside the run's own buffers: by its driver and libraries, and by other programs, if any.
std::optional<std::int64_t> bytes_outside(TrainingRun& run) {
  if (run.stream().device() != Device::cuda) return std::nullopt;
  return cuda::used_bytes() - run.ledger().peak();
}

// What is done once, by rank 0's process, before any rank trains.
struct Prepared {
  std::vector<Plan> stages;      // the first is rank 0's
  std::int64_t arena_bytes = 0;  // on a GPU: what the fullest rank needs
  std::int64_t room = 0;         // of the host's memory, for each rank
  std::optional<RunFolder> folder;
  std::optional<Checkpoint> checkpoint;
  std::vector<std::int64_t> copies;  // of the state in memory, that all hosts have: their steps
  std::string from;                  // where the checkpoint is; empty: the run begins
  std::vector<std::string> notes;
  std::optional<RunData> data;              // of ranks that are threads: one for all
  int cores = usable_cores();               // before ranks take their shares
  std::vector<std::string> hosts;           // of ranks that are processes, by rank
  std::optional<MachineSpec> machine;       // of run.machine, and what it says of a step
  std::optional<StepPrediction> predicted;  //
  std::string problem;                      // what standard error says of a run that has ended
};

// What messages are compared with, where they are timed.
std::optional<LinkRate> link_of(TrainingRun& run) {
  return run.stream().device() == Device::cpu ? probe_link(run.ranks()) : std::nullopt;
}

std::optional<double> rate_of(const std::optional<LinkRate>& link) {
  return link ? std::optional(link->bytes_per_s) : std::nullopt;
}

// --overwrite removes what is in the folder, before the weights are read.
void require_start_outside(const RunSpec& spec) {
  std::error_code ignored;
  const std::filesystem::path from = std::filesystem::weakly_canonical(spec.model_from, ignored),
                              out = std::filesystem::weakly_canonical(spec.run.out, ignored);
  const auto [at, rest] = std::mismatch(out.begin(), out.end(), from.begin(), from.end());
  if (spec.model_from.empty() || at != out.end()) return;
  throw UserError(ExitCode::usage,
                  fmt::format("--overwrite would remove {}, which the weights are to start from", spec.model_from),
                  "choose another --out");
}

// The plan of every stage and, of a run that names a machine, the step's predicted time.
void predict(Prepared& p, const RunSpec& spec) {
  if (spec.run.machine.empty()) {
    p.stages = plan_stages(spec);
    return;
  }
  p.machine = find_machine(spec.run.machine);
  require_machine(spec, *p.machine, "use a smaller layout, or a machine file with more nodes");
  std::optional<RunData> own;
  const RunData& data = p.data ? *p.data : own.emplace(spec);
  p.stages = plan_stages(spec, data);
  p.predicted = predict_step(spec, *p.machine, data, p.stages);
}

void prepare(Prepared& p, const TrainSettings& s, RunSpec& spec, const Launch& launch) {
  require_base(spec);
  const std::int64_t available = available_memory(device_of(spec)) / launch.ranks_a_device();
  resolve_gathered(spec, available);
  if (const std::string line = resolve_snapshot(spec, available); !line.empty()) p.notes.push_back(line);
  predict(p, spec);
  const Plan& most = fullest(p.stages);
  p.arena_bytes = most.peak;
  const std::int64_t host = available_memory(Device::cpu) / launch.ranks_here();
  require_fit(spec, most, available, host, available_disk(spec) / launch.ranks_here());
  require_host_fit(most, host);
  p.room = host;
  require_disk_fit(spec, most, launch.ranks_here());
  if (s.overwrite) require_start_outside(spec);
  p.folder.emplace(spec.run.out, existing_of(s, spec));
  if (s.resumes)
    p.checkpoint = checkpoint_to_resume(
        s.resume,
        {.checkpoints = p.folder->checkpoints(), .backup = spec.train.backup, .copies = s.copies, .copied = p.copies},
        [&](const std::string& line) { p.notes.push_back(line); });
  if (!p.checkpoint) return;
  check_steps(spec, *p.checkpoint);
  p.from = p.checkpoint->path().string();
}

// Tensor- or context-parallel ranks on several hosts, which is seldom meant and always slow.
void note_placement(const Prepared& p, const RunSpec& spec, const std::optional<LinkRate>& link, TrainView& view) {
  if (p.hosts.empty() || spec.layout.servers > 0) return;  // what servers send between hosts is not counted
  const NodeMap nodes = NodeMap::of_hosts(p.hosts);
  if (nodes.nodes() == 1) return;
  const Route route = route_of(device_of(spec));
  const PlacementCosts costs = placement_costs(spec, p.stages, nodes, route);
  const auto rate = link ? std::optional(network_rate(link->bytes_per_s, nodes, route)) : std::nullopt;
  for (const std::string& line : placement_warnings(spec, costs, nodes, rate)) view.note(line);
}

Ending show_training(Prepared& p, const RunSpec& spec, TrainingRun& run, Progress& progress, TrainView& view,
                     bool own_process, const std::optional<CopyPlace>& copies) {
  const Peak peak = peak_of(device_of(spec), storage_types(spec.precision).compute, run.threads());
  const std::optional<LinkRate> link = link_of(run);
  const bool nothing_left = !p.from.empty() && progress.step == spec.train.steps;
  // Of a party of servers (cli/apart.h), the first server's.
  const Plan& own = p.stages.at(static_cast<std::size_t>(run.mesh_rank() > 0 ? spec.layout.pp : 0));
  if (!nothing_left) view.show_start(own, run.data(), peak.source);
  if (!p.from.empty()) view.note("resuming from " + p.from);
  for (const std::string& line : p.notes) view.note(line);
  if (nothing_left)
    view.note(fmt::format("nothing is left to do: all {} steps are done; --set train.steps=N with a larger N continues",
                          progress.step));
  else {
    for (const std::string& line : start_notes(spec, run)) view.note(line);
    note_placement(p, spec, link, view);
  }
  // Ranks that are threads share a GPU, and have cores of their own; processes have a GPU each.
  const double computers =
      device_of(spec) == Device::cuda && !own_process ? 1 : static_cast<double>(spec.layout.ranks());
  if (p.predicted)
    view.expect({.machine = p.machine->name,
                 .step_seconds = p.predicted->step_seconds,
                 .exposed = p.predicted->exposed,
                 .bubble = p.predicted->bubble,
                 .mfu = p.predicted->mfu,
                 .every = p.predicted->local ? p.predicted->local->every : 1});
  if (!nothing_left)
    view.write_plan(
        plan_json({.spec = run.spec(),
                   .stages = p.stages,
                   .schedule = run.replica().rank_step().schedule,
                   .peak_flops = peak.flops * computers,
                   .peak_source = peak.source,
                   .link = link,
                   .shared_corpus = own_process || device_of(spec) != Device::cpu ? 0 : run.data().corpus_bytes(),
                   .cores = p.cores,
                   .host_cores = host_cores(),
                   .threads = run.threads(),
                   .machine = p.machine ? &*p.machine : nullptr,
                   .predicted = p.predicted}));
  const std::int64_t first = progress.step;
  std::optional<StopNotice> notice(std::in_place);
  const Ending ending =
      train(run, progress, view, {.peak_flops = peak.flops * computers, .link = rate_of(link), .copies = copies});
  notice.reset();
  if (spec.run.trace > 0 && progress.step - first == 1)
    view.note("no timeline: the first step is not watched, and there was no other");
  if (!nothing_left) view.show_end(ending, progress, own, run.ledger(), bytes_outside(run));
  p.problem = view.problem();
  return ending;
}

// Rank 0, which also reports progress.
Ending train_first(Prepared& p, const RunSpec& spec, TrainingRun& run, ProcessHeartbeat& heartbeat, bool own_process,
                   std::optional<CopyPlace> copies, const TrainViewOptions& options) {
  if (copies && copies->resumed > 0) copies->every = copy_every_of(*p.checkpoint, run.spec());
  const auto note = [&](const std::string& line) { p.notes.push_back(line); };
  if (!p.checkpoint) run.init_weights(note);
  if (!p.checkpoint && !run.spec().model_from.empty()) note("starting from the weights of " + run.spec().model_from);
  Progress progress = p.checkpoint ? resume(run, *p.checkpoint, note) : beginning(run);
  require_same_weights(run);
  if (const auto ignored = ignored_tuning(run.spec().tuning, run.stream())) p.notes.push_back(*ignored);
  p.checkpoint.reset();  // its files stay mapped no longer than needed
  p.folder->write_run_file(progress.run_file);
  heartbeat.add(run);

  TrainView view(spec, *p.folder, progress.step, listen_for_signals(spec.run.stop_signals), options);
  try {
    return show_training(p, spec, run, progress, view, own_process, copies);
  } catch (const std::exception& error) {  // of any rank: the log must say why
    view.failed(error.what());
    throw;
  }
}

Ending train_other(const std::string& from, TrainingRun& run, ProcessHeartbeat& heartbeat, bool own_process,
                   const std::optional<CopyPlace>& copies) {
  if (from.empty()) run.init_weights();
  Progress progress =
      from.empty() ? beginning(run) : resume(run, open_verified_checkpoint(from), [](const std::string&) {});
  require_same_weights(run);
  SilentRank silent(run, progress.step, own_process);
  heartbeat.add(run);
  const std::optional<LinkRate> link = link_of(run);
  try {
    return train(run, progress, silent, {.link = rate_of(link), .copies = copies});
  } catch (const std::exception& error) {
    const auto* of_another = dynamic_cast<const CommError*>(&error);
    if (own_process && !(of_another && of_another->secondary()))
      log_end_of_rank(run.spec().run.out, run.mesh_rank(), error.what());
    throw;
  }
}

int run_training(const TrainSettings& s) {
  TrainViewOptions view = s.view;
  view.resumes = s.resumes;
  view.began = std::chrono::steady_clock::now();
  RunSpec spec = spec_of(s);
  if (s.apart) {
    const LaunchedProcess place = apart_place(spec);
    if (!spec.layout.serves(place.rank)) return run_worker(spec, place);
    view.rank = apart_mesh(spec.layout).first_server();
  }
  Launch launch(spec, "train", s.layout.say_ranks(s.run),
                {{"--resume", s.resumes ? "given" : "not given"},
                 {"--overwrite", s.overwrite ? "given" : "not given"},
                 {"--copies", s.copies.empty() ? "not given" : "given"}},
                s.apart ? Launch::Layout::servers : Launch::Layout::adopted);
  Prepared prepared;
  const RunSpec as_told = spec;
  const bool by_hand = !launched_as_one_of_many();
  // A launcher ends all when one has failed: each must say why first.
  if (!by_hand) listen_for_signals(spec.run.stop_signals);
  if (by_hand) std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is no reason to lose steps (TrainView)
  // Ranks that are threads share the link and the cores as they are measured here.
  const auto choose = [&](int threads, Communicator* ranks) {
    if (const auto why = choose_update(spec, device_of(spec), threads, ranks)) prepared.notes.push_back(*why);
  };
  if (by_hand) prepared.copies = copies_of_all(s.copies, nullptr);
  if (by_hand) {  // a mistake is reported before there are ranks
    choose(threads_of(spec) * static_cast<int>(spec.layout.ranks()), nullptr);
    prepare(prepared, s, spec, launch);
    if (spec.layout.ranks() > 1) prepared.data.emplace(spec);
  }
  std::atomic<Ending> ending = Ending::finished;
  ProcessHeartbeat heartbeat;
  launch.run([&](const RankPlace& place) {
    Communicator& ranks = place.ranks;
    const bool first = ranks.rank() == 0;
    if (!by_hand) {
      choose(place.threads, ranks.size() > 1 ? &ranks : nullptr);
      read_same_data(prepared.data, spec, ranks);
      if (!s.resumes) require_same_import(spec, ranks);  // a folder that is to be replaced is still as it was
      const std::vector<std::string> hosts = gather_texts(ranks, control::host_name());
      const std::vector<std::int64_t> copied = copies_of_all(s.copies, &ranks);
      if (first) {
        prepared.hosts = hosts;
        prepared.copies = copied;
        prepare(prepared, s, spec, launch);
      }
    }
    std::string from = prepared.from, gathered = std::to_string(spec.memory.gathered),
                snapshot = std::to_string(static_cast<int>(spec.train.snapshot));
    if (!by_hand) {
      share_place(ranks, from, s.copies);  // also: continue
      share_text(ranks, gathered, 0);      // which rank 0 may have chosen
      share_text(ranks, snapshot, 0);
      if (!first) spec.memory.gathered = std::stoll(gathered);
      if (!first) spec.train.snapshot = static_cast<SnapshotPlace>(std::stoi(snapshot));
    }
    if (!by_hand && !from.empty())
      first ? require_same_checkpoint(*prepared.checkpoint, ranks)
            : require_same_checkpoint(open_verified_checkpoint(from), ranks);
    if (!by_hand && from.empty() && s.resumes) require_same_import(spec, ranks);
    const std::int64_t arena_bytes =
        !first && device_of(spec) == Device::cuda ? plan_run(spec, ranks.rank()).peak : prepared.arena_bytes;
    const std::optional<CopyPlace> copies =
        copy_place(s.copies, from, by_hand ? prepared.room : available_memory() / launch.ranks_here());
    std::optional<ApartServer> server;
    if (s.apart) server.emplace(spec, apart_settings(as_told, *prepared.data), ranks);
    TrainingRun run(spec, device_of(spec, ranks.rank()), std::filesystem::path(spec.run.out) / "checkpoints",
                    {.arena_bytes = spec.sparsity ? 0 : arena_bytes,  // masks lay state out anew, where there is room
                     .ranks = ranks.size() > 1 ? &ranks : nullptr,
                     .mesh = server ? &server->mesh() : nullptr,
                     .workers = server ? &server->workers() : nullptr,
                     .connect = place.connect,
                     .threads = place.threads,
                     .data = prepared.data ? &*prepared.data : nullptr,
                     .data_of_rank = !by_hand});
    const Ending end = first ? train_first(prepared, spec, run, heartbeat, place.alone_here, copies, view)
                             : train_other(from, run, heartbeat, place.alone_here, copies);
    if (server) run.dismiss_workers();
    if (first || place.alone_here) ending = end;
  });
  if (!prepared.problem.empty()) fmt::print(stderr, "lockstep: {}\n", prepared.problem);
  if (ending == Ending::bad_values) return static_cast<int>(ExitCode::check_failed);
  return static_cast<int>(prepared.problem.empty() ? ExitCode::done : ExitCode::environment);
}

// Gives a command the options of a training; the function that is returned completes the settings once they are parsed.
std::function<void()> add_training(CLI::App* command, const std::shared_ptr<TrainSettings>& settings) {
  settings->run.add_to(*command);
  settings->layout.add_to(*command, 1024, "1; under mpirun its processes");
  command->add_option("--out", settings->out, "Run folder [runs/<name of the run file>]")->type_name("DIR");
  CLI::Option* resume = command
                            ->add_option("--resume", settings->resume,
                                         "Resume from the newest whole checkpoint of the run's own folder (auto), of "
                                         "another run's, or from one checkpoint")
                            ->expected(0, 1)
                            ->default_str("auto")
                            ->type_name("[auto|DIR]");
  CLI::Option* overwrite =
      command->add_flag("--overwrite", settings->overwrite, "Start over in a folder that holds a run");
  overwrite->excludes(resume);
  command
      ->add_option("--machine", settings->machine,
                   "Predict the step's time by this machine file, or one that comes with Lockstep, and score it at the "
                   "end (run.machine)")
      ->type_name("NAME|FILE");
  command->add_flag("--quiet", settings->view.quiet,
                    "Print notes and errors alone; log.txt and metrics.jsonl have the rest");
  command
      ->add_option(
          "--log-every", settings->view.log_every,
          "Steps between lines of steps, and the last [in a pipe 1; on a terminal none: one line is rewritten]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}).description(""))
      ->type_name("N");
  return [settings, resume] {
    settings->resumes = resume->count() > 0;
    // "--resume run.toml" means the run file and its own folder.
    if (settings->run.file.empty() && std::filesystem::is_regular_file(settings->resume))
      settings->run.file = std::exchange(settings->resume, "auto");
    if (settings->resumes && settings->resume.empty()) settings->resume = "auto";
  };
}

}  // namespace

void add_train(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<TrainSettings>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->footer(
      "Without a run file the built-in example is trained. Ctrl-C, SIGTERM and the signals of run.stop_signals "
      "(SIGHUP,\n"
      "SIGUSR1, SIGUSR2, SIGXCPU) finish the step, save and exit with 0; a second Ctrl-C or SIGTERM exits at once. A "
      "save\n"
      "that fails is reported and tried again while the run continues. The run folder holds run.toml, metrics.jsonl, "
      "log.txt,\n"
      "ranks, tensorboard and checkpoints. On a terminal one line is rewritten with every step.\n\n"
      "Examples: lockstep train\n"
      "          lockstep train my.toml --set optim.lr=3e-4 --out runs/a\n"
      "          lockstep train --resume runs/a --set train.steps=2000\n"
      "          lockstep train my.toml --ranks 4                   four ranks in all, threads of this process; dp is "
      "what\n"
      "                                                             pp, cp and tp of the layout leave of them\n"
      "          mpirun -n 4 lockstep train my.toml                 likewise, processes on one or several machines\n"
      "          torchrun --no-python --nproc-per-node 8 lockstep train my.toml --set run.device=cuda   one GPU per "
      "rank");
  command
      ->add_option("--copies", settings->copies,
                   "Copy the state into this folder after every train.copy_every-th step, and resume from there where "
                   "that is newer; launch gives it, in memory")
      ->type_name("DIR");
  command->add_flag("--apart", settings->apart,
                    "Parameter servers and workers meet apart, so that a worker may die and join while the others go "
                    "on; launch gives it");
  command->callback([settings, complete = add_training(command, settings), &chosen] {
    complete();
    chosen = [settings] { return run_training(*settings); };
  });
}

TrainingOrder add_training_order(CLI::App& command) {
  auto settings = std::make_shared<TrainSettings>();
  return [settings, complete = add_training(&command, settings)] {
    complete();
    const RunSpec spec = spec_of(*settings);
    return OrderedTraining{.folder = spec.run.out,
                           .ranks = static_cast<int>(spec.layout.ranks()),
                           .resumes = settings->resumes,
                           .resumes_own = existing_of(*settings, spec) == RunFolder::Existing::keep,
                           .names_folder = !settings->out.empty(),
                           .stop_signals = spec.run.stop_signals,
                           .spec = spec};
  };
}

}  // namespace lockstep
