#include "cli/train.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <utility>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "cli/launch.h"
#include "cli/run_arguments.h"
#include "cli/same_start.h"
#include "cli/signals.h"
#include "cli/train_view.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "spec/run_toml.h"
#include "tensor/cuda/device.h"
#include "train/host_values.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/tuning.h"

namespace lockstep {

namespace {

struct Settings {
  RunArguments run;
  LayoutArguments layout;
  std::string out, resume;
  bool resumes = false, overwrite = false;
};

// What --resume names: a run folder, its checkpoints, or one checkpoint; "auto" is the run's own folder.
std::optional<Checkpoint> checkpoint_of(const Settings& s, const RunFolder& folder,
                                        const std::function<void(const std::string&)>& note) {
  if (!s.resumes) return std::nullopt;
  const auto report = [&](const std::filesystem::path& path, const std::string& reason) {
    note(fmt::format("passing over {}: {}", path.string(), reason));
  };
  if (s.resume != "auto") return require_checkpoint(s.resume, report);
  auto found = find_checkpoint(folder.checkpoints(), report);
  if (!found) note("no whole checkpoint there yet: the run begins at step 0");
  return found;
}

RunSpec spec_of(const Settings& s) {
  RunArguments arguments = s.run;
  // Going on in a folder needs no run file: the folder has its own, and is where the run goes on.
  const bool own_file = arguments.file.empty() && s.resumes && s.resume != "auto" && holds_a_run(s.resume);
  if (own_file) arguments.file = (std::filesystem::path(s.resume) / "run.toml").string();
  RunSpec spec = s.layout.read(arguments);
  if (own_file) spec.run.out = s.resume;
  if (!s.out.empty()) spec.run.out = s.out;
  return spec;
}

// A run is gone on with in its own folder; what another folder holds is not mixed with it.
RunFolder::Existing existing_of(const Settings& s, const RunSpec& spec) {
  std::error_code ignored;
  if (s.overwrite) return RunFolder::Existing::replace;
  if (!s.resumes) return RunFolder::Existing::refuse;
  const std::filesystem::path from = s.resume, out = spec.run.out;
  const bool own = s.resume == "auto" || std::filesystem::equivalent(from, out, ignored) ||
                   std::filesystem::equivalent(from, out / "checkpoints", ignored) ||
                   std::filesystem::equivalent(from / "..", out / "checkpoints", ignored);
  return own ? RunFolder::Existing::keep : RunFolder::Existing::refuse;
}

// What is in use on a GPU beside the run's own buffers: its driver's and libraries', and that of others, if any.
std::optional<std::int64_t> bytes_outside(TrainingRun& run) {
  if (run.stream().device() != Device::cuda) return std::nullopt;
  return cuda::used_bytes() - run.ledger().peak();
}

// What is done once, by rank 0's process, before any rank trains.
struct Prepared {
  Plan plan;                     // of rank 0
  std::int64_t arena_bytes = 0;  // on a GPU: what the fullest rank needs
  std::optional<RunFolder> folder;
  std::optional<Checkpoint> checkpoint;
  std::string from;  // where the checkpoint is; empty: the run begins
  std::vector<std::string> notes;
  std::optional<RunData> data;  // of ranks that are threads: one for all
};

void prepare(Prepared& p, const Settings& s, const RunSpec& spec, const Launch& launch) {
  const std::vector<Plan> stages = plan_stages(spec);
  p.plan = stages.front();
  p.arena_bytes = fullest(stages).peak;
  require_fit(spec, fullest(stages), available_memory(device_of(spec)) / launch.ranks_a_device());
  require_host_fit(fullest(stages), available_memory(Device::cpu) / launch.ranks_here());
  p.folder.emplace(spec.run.out, existing_of(s, spec));
  p.checkpoint = checkpoint_of(s, *p.folder, [&](const std::string& line) { p.notes.push_back(line); });
  if (p.checkpoint) p.from = p.checkpoint->path().string();
}

// Rank 0, which also tells how it goes.
Ending train_first(Prepared& p, const RunSpec& spec, TrainingRun& run, bool own_process) {
  Progress progress = beginning(run);
  if (p.checkpoint)
    progress = resume(run, *p.checkpoint, [&](const std::string& line) { p.notes.push_back(line); });
  else
    run.init_weights();
  require_same_weights(run);
  if (const auto ignored = ignored_tuning(run.spec().tuning, run.stream())) p.notes.push_back(*ignored);
  p.checkpoint.reset();  // its files stay mapped no longer than needed
  p.folder->write_run_file(progress.run_file);

  TrainView view(spec, *p.folder, progress.step, listen_for_signals());
  const Peak peak = peak_of(device_of(spec), storage_types(spec.precision).compute, run.threads());
  view.show_start(p.plan, run.data(), peak.source);
  if (!p.from.empty()) view.note("going on from " + p.from);
  for (const std::string& line : p.notes) view.note(line);
  // Ranks that are threads share a GPU, and have cores of their own; processes have a GPU each.
  const double computers =
      device_of(spec) == Device::cuda && !own_process ? 1 : static_cast<double>(spec.layout.ranks());
  const Ending ending = train(run, progress, view, {.peak_flops = peak.flops * computers});
  view.show_end(ending, progress, p.plan, run.ledger(), bytes_outside(run));
  return ending;
}

// Any other rank: silent, but in a process of its own it hears signals too.
class Silent final : public Watcher {
 public:
  explicit Silent(bool own_process) : stop_(own_process ? &listen_for_signals() : nullptr) {}
  bool wants_stop() override { return stop_ && *stop_; }

 private:
  const std::atomic<bool>* stop_;
};

Ending train_other(const std::string& from, TrainingRun& run, bool own_process) {
  Progress progress = beginning(run);
  if (from.empty())
    run.init_weights();
  else
    progress = resume(run, open_verified_checkpoint(from), [](const std::string&) {});
  require_same_weights(run);
  Silent silent(own_process);
  return train(run, progress, silent);
}

int run_training(const Settings& s) {
  RunSpec spec = spec_of(s);
  Launch launch(
      spec, "train",
      {{"--resume", s.resumes ? "given" : "not given"}, {"--overwrite", s.overwrite ? "given" : "not given"}});
  Prepared prepared;
  const bool by_hand = !launched_as_one_of_many();
  if (!by_hand) listen_for_signals();  // a launcher ends all when one has failed: each is to say why first
  if (by_hand) {                       // a mistake is told before there are ranks
    prepare(prepared, s, spec, launch);
    if (spec.layout.ranks() > 1) prepared.data.emplace(spec);
  }
  std::atomic<Ending> ending = Ending::finished;
  launch.run([&](const RankPlace& place) {
    Communicator& ranks = place.ranks;
    const bool first = ranks.rank() == 0;
    if (!by_hand) {
      read_same_data(prepared.data, spec, ranks);
      if (!s.resumes) require_same_import(spec, ranks);  // a folder that is to be replaced is still as it was
      if (first) prepare(prepared, s, spec, launch);
    }
    std::string from = prepared.from;
    if (!by_hand) share_text(ranks, from, 0);  // also: go on
    if (!by_hand && !from.empty())
      first ? require_same_checkpoint(*prepared.checkpoint, ranks)
            : require_same_checkpoint(open_verified_checkpoint(from), ranks);
    if (!by_hand && from.empty() && s.resumes) require_same_import(spec, ranks);
    if (!by_hand && !first && device_of(spec) == Device::cuda) prepared.arena_bytes = plan_run(spec, ranks.rank()).peak;
    TrainingRun run(spec, device_of(spec), std::filesystem::path(spec.run.out) / "checkpoints",
                    {.arena_bytes = prepared.arena_bytes,
                     .ranks = ranks.size() > 1 ? &ranks : nullptr,
                     .connect = place.connect,
                     .threads = place.threads,
                     .data = prepared.data ? &*prepared.data : nullptr,
                     .data_of_rank = !by_hand});
    const Ending end =
        first ? train_first(prepared, spec, run, place.alone_here) : train_other(from, run, place.alone_here);
    if (first || place.alone_here) ending = end;
  });
  return static_cast<int>(ending == Ending::bad_values ? ExitCode::check_failed : ExitCode::done);
}

}  // namespace

void add_train(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<Settings>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->footer(
      "Without a run file the built-in example is trained. Ctrl-C (or SIGTERM) finishes the step, saves and exits "
      "with\n"
      "0; a second one exits at once. The run folder holds run.toml, metrics.jsonl, log.txt and checkpoints.\n\n"
      "Examples: lockstep train\n"
      "          lockstep train my.toml --set optim.lr=3e-4 --out runs/a\n"
      "          lockstep train --resume runs/a --set train.steps=2000\n"
      "          lockstep train my.toml --ranks 4                   four ranks, threads of this process\n"
      "          mpirun -n 4 lockstep train my.toml                 four ranks, processes on one or several machines\n"
      "          torchrun --no-python --nproc-per-node 8 lockstep train my.toml --set run.device=cuda   a GPU a rank");
  settings->run.add_to(*command);
  settings->layout.add_to(*command, 1024, "1; under mpirun its processes");
  command->add_option("--out", settings->out, "Run folder [runs/<name of the run file>]")->type_name("DIR");
  CLI::Option* resume = command
                            ->add_option("--resume", settings->resume,
                                         "Go on from the newest whole checkpoint of the run's own folder (auto), of "
                                         "another run's, or from one checkpoint")
                            ->expected(0, 1)
                            ->default_str("auto")
                            ->type_name("[auto|DIR]");
  CLI::Option* overwrite =
      command->add_flag("--overwrite", settings->overwrite, "Begin anew in a folder that holds a run");
  overwrite->excludes(resume);
  command->callback([settings, resume, &chosen] {
    settings->resumes = resume->count() > 0;
    // "--resume run.toml": the run file is meant, and its own folder.
    if (settings->run.file.empty() && std::filesystem::is_regular_file(settings->resume))
      settings->run.file = std::exchange(settings->resume, "auto");
    if (settings->resumes && settings->resume.empty()) settings->resume = "auto";
    chosen = [settings] { return run_training(*settings); };
  });
}

}  // namespace lockstep
