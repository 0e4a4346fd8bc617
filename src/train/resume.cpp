#include "train/resume.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/local_state.h"
#include "kernels/elementwise.h"
#include "spec/run/run_settings.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

// Settings that belong to the machine and the moment, not to what is learned. All others are what the run is.
constexpr auto kMayChange = std::to_array<std::string_view>({"train.steps",
                                                             "train.global_batch",
                                                             "train.eval_every",
                                                             "train.eval_batches",
                                                             "train.save_every",
                                                             "train.keep",
                                                             "train.bad_values",
                                                             "train.loss_spikes",
                                                             "train.spike_z",
                                                             "train.most_rewinds",
                                                             "train.async_save",
                                                             "optim.lr",
                                                             "optim.betas",
                                                             "optim.eps",
                                                             "optim.weight_decay",
                                                             "optim.clip",
                                                             "optim.schedule",
                                                             "optim.warmup",
                                                             "optim.decay",
                                                             "optim.final",
                                                             "layout.micro",
                                                             "layout.dp",
                                                             "layout.dp_kind",
                                                             "layout.servers",
                                                             "layout.overlap",
                                                             "layout.bucket",
                                                             "layout.embedding_gradient",
                                                             "layout.uneven",
                                                             "layout.reduce",
                                                             "layout.zero",
                                                             "layout.grad_sync",
                                                             "layout.reshard",
                                                             "layout.prefetch",
                                                             "layout.wrap",
                                                             "layout.shard",
                                                             "layout.cp",
                                                             "layout.cp_kind",
                                                             "layout.cp_order",
                                                             "layout.tp",
                                                             "layout.sp",
                                                             "layout.tp_chunks",
                                                             "layout.pp",
                                                             "layout.schedule",
                                                             "layout.schedule_file",
                                                             "layout.chunks",
                                                             "layout.stages",
                                                             "run.threads",
                                                             "run.pin",
                                                             "run.deadline",
                                                             "run.device",
                                                             "run.server_device",
                                                             "run.out",
                                                             "run.autotune",
                                                             "run.trace",
                                                             "run.record_every",
                                                             "run.check_state",
                                                             "run.tensorboard",
                                                             "run.clock",
                                                             "run.clock_error",
                                                             "run.stop_signals",
                                                             "run.machine",
                                                             "train.save_last",
                                                             "train.save_retry",
                                                             "train.snapshot",
                                                             "tuning.gpu",
                                                             "tuning.library",
                                                             "precision.gradients",
                                                             "precision.loss_scale",
                                                             "precision.loss_scale_growth",
                                                             "train.deterministic",
                                                             "memory.recompute",
                                                             "memory.gathered",
                                                             "memory.recompute_blocks",
                                                             "memory.offload_optimizer",
                                                             "memory.offload_gradients",
                                                             "memory.offload_parameters",
                                                             "memory.offload_share",
                                                             "memory.offload_window",
                                                             "memory.offload_folder",
                                                             "memory.offload_activations",
                                                             "memory.offload_blocks",
                                                             "memory.offload_update",
                                                             "memory.recompute_every",
                                                             "memory.recompute_stages",
                                                             "sync.kind",
                                                             "sync.every",
                                                             "sync.outer",
                                                             "sync.outer_lr",
                                                             "sync.outer_momentum",
                                                             "sync.group",
                                                             "sync.staleness",
                                                             "sync.replay",
                                                             "sync.compress",
                                                             "sync.feedback",
                                                             "sync.feedback",
                                                             "sync.compress_weights",
                                                             "sync.compress_activations"});
// Where the same data or weights are found is no part of them: the data's fingerprint and the tensors decide. Nor is
// where else the state is kept.
constexpr auto kPlaces = std::to_array<std::string_view>({"data.text", "data.tokens", "data.tokenizer", "data.example",
                                                          "model.hf", "model.from", "train.backup", "train.copy_every",
                                                          "model.preset", "tuning.products"});

// Keys that run files of earlier versions lack, and what those runs did, or what is as good to a person who resumes.
constexpr std::string_view kSignalsBefore = R"(["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"])";
constexpr auto kBefore =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"precision.gradients", "\"fp32\""},
                                                                  {"run.server_device", "\"same\""},
                                                                  {"precision.moments", "\"fp32\""},
                                                                  {"precision.master", "\"fp32\""},
                                                                  {"layout.dp", "1"},
                                                                  {"layout.dp_kind", "\"ddp\""},
                                                                  {"layout.overlap", "\"on\""},
                                                                  {"layout.bucket", "25"},
                                                                  {"layout.embedding_gradient", "\"dense\""},
                                                                  {"layout.uneven", "\"off\""},
                                                                  {"layout.reduce", "\"canonical\""},
                                                                  {"data.documents", "\"stream\""},
                                                                  {"run.pin", "true"},
                                                                  {"run.deadline", "30"},
                                                                  {"run.trace", "0"},
                                                                  {"run.record_every", "1"},
                                                                  {"run.check_state", "0"},
                                                                  {"run.tensorboard", "true"},
                                                                  {"run.clock", "\"local\""},
                                                                  {"run.clock_error", "0.0001"},
                                                                  {"run.stop_signals", kSignalsBefore},
                                                                  {"train.save_retry", "30"},
                                                                  {"train.snapshot", "\"auto\""},
                                                                  {"train.loss_spikes", "\"ignore\""},
                                                                  {"train.spike_z", "8"},
                                                                  {"train.most_rewinds", "8"},
                                                                  {"train.deterministic", "true"},
                                                                  {"memory.recompute", "\"none\""},
                                                                  {"memory.gathered", "0"},
                                                                  {"memory.offload_optimizer", "\"none\""},
                                                                  {"memory.offload_gradients", "\"none\""},
                                                                  {"memory.offload_parameters", "\"none\""},
                                                                  {"memory.offload_activations", "\"none\""},
                                                                  {"sync.kind", "\"full\""},
                                                                  {"sync.compress", "\"none\""},
                                                                  {"sync.compress_weights", "\"none\""},
                                                                  {"sync.compress_activations", "\"none\""},
                                                                  {"sparsity.kind", "\"none\""},
                                                                  {"lora.rank", "0"},
                                                                  {"layout.cp", "1"},
                                                                  {"layout.tp", "1"},
                                                                  {"layout.sp", "\"off\""},
                                                                  {"layout.pp", "1"},
                                                                  {"layout.schedule", "\"1f1b\""},
                                                                  {"layout.chunks", "1"},
                                                                  {"layout.stages", "\"cost\""},
                                                                  {"layout.zero", "0"},
                                                                  {"layout.grad_sync", "\"step\""},
                                                                  {"layout.prefetch", "1"},
                                                                  {"layout.wrap", "\"block\""}});

std::map<std::string, std::string> settings(const std::string& toml) {
  const auto all = settings_of(toml);
  return {all.begin(), all.end()};
}

bool contains(std::span<const std::string_view> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void compare(const std::string& before, const std::string& now, const std::function<void(const std::string&)>& note) {
  const auto old_settings = settings(before), new_settings = settings(now);
  std::map<std::string, std::pair<std::string, std::string>> different;
  for (const auto& [name, value] : old_settings) different[name].first = value;
  for (const auto& [name, value] : new_settings) different[name].second = value;
  for (const auto& [name, value] : kBefore)
    if (const auto at = different.find(std::string(name)); at != different.end() && at->second.first.empty())
      at->second.first = value;
  // Where the rank is another, or none, the keys beside it differ because of that.
  if (const auto rank = different.find("lora.rank");
      rank != different.end() && rank->second.first != rank->second.second)
    different = {*rank};
  for (const auto& [name, values] : different) {
    const auto& [was, is] = values;
    if (was == is || contains(kPlaces, name) || is_place_of_source(name)) continue;
    const auto shown = [](const std::string& value) { return value.empty() ? "not set" : value; };
    if (!contains(kMayChange, name))
      throw UserError(ExitCode::usage,
                      fmt::format("{} was {} in the checkpoint's run and is {} now", name, shown(was), shown(is)),
                      "put it back, or begin a new run without --resume and with another --out");
    note(fmt::format("{} changes from {} to {}", name, shown(was), shown(is)));
  }
}

// Where replicas take local steps, each group's moments are its own: as many groups continue with theirs, and of a run
// that had one set of moments, all begin with that.
std::vector<StateTensor> state_to_load(TrainingRun& run, const Checkpoint& checkpoint) {
  std::vector<StateTensor> state = run.replica().state();
  std::set<std::int64_t> saved;
  bool has_outer = false;
  for (const ManifestTensor& tensor : checkpoint.manifest().tensors) {
    if (const auto group = group_of_part(tensor.part)) saved.insert(*group);
    has_outer |= tensor.part == LocalSteps::kMomentumPart;
  }
  const auto is_local = [](const StateTensor& t) { return is_local_part(t.part); };
  const std::int64_t groups = std::ranges::any_of(state, is_local) ? run.spec().sync.groups(run.spec().layout.dp) : 1;
  if (!saved.empty() && std::ssize(saved) != groups)
    throw UserError(
        ExitCode::checkpoint,
        fmt::format("{}: it has the optimizer's moments of {} groups of replicas that took local steps, and "
                    "the run has {}",
                    checkpoint.path().string(), saved.size(), groups),
        fmt::format("resume with [sync] as it was and {} groups of dp ranks, or begin another run with its "
                    "weights (model.from)",
                    saved.size()));
  if (saved.empty())
    for (StateTensor& one : state) one.part = part_of_all(one.part);
  // A run that had no outer momentum begins it at zero.
  if (!has_outer) std::erase_if(state, [](const StateTensor& t) { return t.part == LocalSteps::kMomentumPart; });
  return state;
}

}  // namespace

Progress beginning(const TrainingRun& run) {
  return {.seed = run.spec().train.seed,
          .data_fingerprint = run.data().fingerprint(),
          .run_file = to_toml(run.spec()),
          .loss_scale = run.loss_scale()};
}

void check_steps(const RunSpec& spec, const Checkpoint& checkpoint) {
  const std::int64_t done = checkpoint.progress().step;
  if (spec.train.steps >= done) return;
  throw UserError(
      ExitCode::usage,
      fmt::format("train.steps is {}, and {} has done {}", spec.train.steps, checkpoint.path().string(), done),
      fmt::format("use --set train.steps={} or more, resume from an earlier checkpoint, or begin a new run "
                  "with another --out",
                  done));
}

void load_state(TrainingRun& run, const Checkpoint& checkpoint, const std::function<void(const std::string&)>& note) {
  run.replica().open_state();
  checkpoint.load(state_to_load(run, checkpoint), run.stream());
  const SyncSpec& sync = run.spec().sync;
  const bool saved = std::ranges::any_of(checkpoint.manifest().tensors,
                                         [](const ManifestTensor& tensor) { return tensor.part == kResidualPart; });
  if (!sync.compress || !sync.feedback) {
    if (saved) note("what compression had left out of the gradients is dropped");
    return;
  }
  const std::vector<StateTensor> owed = run.replica().owed();
  if (saved)
    checkpoint.load(owed, run.stream());
  else
    for (const StateTensor& one : owed) fill({.y = one.live, .value = 0}, run.stream());
  run.replica().deal_owed();
}

// The frozen weights are no part of a checkpoint: they come from where the run says, and must be those of then.
static void load_base_of(TrainingRun& run, const Checkpoint& checkpoint,
                         const std::function<void(const std::string&)>& note) {
  if (!run.spec().lora) return;
  const RunSpec saved = run_of(checkpoint);
  if (run.spec().model_hf.empty() && run.spec().model_from.empty()) return run.replica().init_weights();
  run.load_base(note);
  if (saved.lora.base.empty() || saved.lora.base == run.spec().lora.base) return;
  const std::string& now = run.spec().model_hf.empty() ? run.spec().model_from : run.spec().model_hf;
  const std::string& then = saved.model_hf.empty() ? saved.model_from : saved.model_hf;
  throw UserError(ExitCode::usage,
                  fmt::format("{}: its adapters were trained beside another base than {}: fingerprint {}, not {}",
                              checkpoint.path().string(), now, saved.lora.base, run.spec().lora.base),
                  fmt::format("name the base that it was, {} then, by model.hf or model.from", then));
}

Progress resume(TrainingRun& run, const Checkpoint& checkpoint, const std::function<void(const std::string&)>& note) {
  const Progress& saved = checkpoint.progress();
  check_steps(run.spec(), checkpoint);
  load_base_of(run, checkpoint, note);
  if (run.spec().tuning == TuningSpec{}) run.use_tuning(parse_tuning_toml(saved.run_file, checkpoint.path().string()));
  Progress progress = beginning(run);
  compare(saved.run_file, progress.run_file, note);
  if (saved.data_fingerprint != progress.data_fingerprint)
    throw UserError(ExitCode::usage,
                    fmt::format("{}: the data is not the data it was trained on", checkpoint.path().string()),
                    "put the same text or tokens back, or begin a new run without --resume and with another --out");
  load_state(run, checkpoint, note);
  run.replica().resume(saved.step, saved.updates, saved.loss_scale);
  if (run.is_first_rank()) run.keep_companions(companions_of(checkpoint));
  progress.step = saved.step;
  progress.updates = saved.updates;
  progress.samples = saved.samples;
  progress.loss_scale = run.loss_scale();
  if (run.spec().train.loss_spikes == LossSpikes::rewind) progress.spikes = saved.spikes;
  return progress;
}

}  // namespace lockstep
