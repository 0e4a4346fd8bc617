#include "cli/train.h"

#include <fmt/format.h>
#include <memory>
#include <utility>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "cli/run_arguments.h"
#include "cli/signals.h"
#include "cli/train_view.h"
#include "comm/threads/run_ranks.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "spec/run_toml.h"
#include "tensor/cuda/device.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/tuning.h"

namespace lockstep {

namespace {

struct Settings {
  RunArguments run;
  std::string out, resume;
  bool resumes = false, overwrite = false;
  int ranks = 0;  // 0: as the run file says
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
  if (s.ranks > 0) arguments.sets.push_back(fmt::format("layout.dp={}", s.ranks));
  // Going on in a folder needs no run file: the folder has its own, and is where the run goes on.
  const bool own_file = arguments.file.empty() && s.resumes && s.resume != "auto" && holds_a_run(s.resume);
  if (own_file) arguments.file = (std::filesystem::path(s.resume) / "run.toml").string();
  RunSpec spec = arguments.read();
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

// A thread that ends is named at once; one that is late may be rank 0 waiting for a slow disk.
constexpr double kRankDeadline = 600;

int run_training(const Settings& s) {
  const RunSpec spec = spec_of(s);
  const Plan plan = plan_run(spec);
  require_fit(spec, plan, available_memory(device_of(spec)) / spec.layout.dp);  // every rank has its own
  require_host_fit(plan, available_memory(Device::cpu));
  const RunFolder folder(spec.run.out, existing_of(s, spec));
  std::vector<std::string> notes;  // before there is a view
  const auto note = [&](const std::string& line) { notes.push_back(line); };
  std::optional<Checkpoint> checkpoint = checkpoint_of(s, folder, note);

  const std::string from = checkpoint ? checkpoint->path().string() : "";
  Ending ending = Ending::finished;
  // Rank 0, which also tells how it goes.
  const auto first_rank = [&](Communicator* ranks) {
    TrainingRun run(spec, device_of(spec), folder.checkpoints(), {.arena_bytes = plan.peak, .ranks = ranks});
    Progress progress = beginning(run);
    if (checkpoint)
      progress = resume(run, *checkpoint, note);
    else
      run.init_weights();
    if (const auto ignored = ignored_tuning(run.spec().tuning, run.stream())) note(*ignored);
    checkpoint.reset();  // its files stay mapped no longer than needed
    folder.write_run_file(progress.run_file);

    TrainView view(spec, folder, progress.step, listen_for_signals());
    const Peak peak = peak_of(device_of(spec), storage_types(spec.precision).compute, run.threads());
    view.show_start(plan, run.data(), peak.source);
    if (!from.empty()) view.note("going on from " + from);
    for (const std::string& line : notes) view.note(line);
    ending = train(run, progress, view, {.peak_flops = peak.flops * static_cast<double>(spec.layout.dp)});
    view.show_end(ending, progress, plan, run.ledger(), bytes_outside(run));
  };
  const auto other_rank = [&](Communicator& ranks) {
    TrainingRun run(spec, device_of(spec), folder.checkpoints(), {.ranks = &ranks});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, require_checkpoint(from, [](const auto&, const auto&) {}), [](const std::string&) {});
    Watcher silent;
    train(run, progress, silent);
  };
  if (device_of(spec) == Device::cuda)
    first_rank(nullptr);
  else
    run_ranks(
        static_cast<int>(spec.layout.dp),
        [&](std::unique_ptr<Communicator> ranks) { ranks->rank() == 0 ? first_rank(ranks.get()) : other_rank(*ranks); },
        {.deadline_seconds = kRankDeadline});
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
      "          lockstep train --resume runs/a --set train.steps=2000");
  settings->run.add_to(*command);
  command->add_option("--ranks", settings->ranks, "Ranks that share each batch, as threads: layout.dp [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
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
