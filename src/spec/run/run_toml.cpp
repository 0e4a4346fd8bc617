// Over 300 lines: the lists of keys, and one reader per table beside them.
#include "spec/run/run_toml.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "spec/layout/layout_toml.h"
#include "spec/machine/machine_spec.h"
#include "spec/model/hf_config.h"
#include "spec/model/model_toml.h"
#include "spec/model/presets.h"
#include "spec/run/data_choices.h"
#include "spec/run/lora_toml.h"
#include "spec/run/memory_toml.h"
#include "spec/run/precision_toml.h"
#include "spec/run/source_toml.h"
#include "spec/run/sparsity_toml.h"
#include "spec/run/stop_signals.h"
#include "spec/run/sync_toml.h"
#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

// Found by their arguments, so not in the unnamed namespace.
static constexpr auto values_of(OptimizerKind) { return kOptimizerKinds; }
static constexpr auto values_of(RateKind) { return kRateKinds; }
static constexpr auto values_of(RunDevice) { return kRunDevices; }
static constexpr auto values_of(ServerDevice) { return kServerDevices; }
static constexpr auto values_of(Documents) { return kDocuments; }
static constexpr auto values_of(ClockScope) { return kClockScopes; }
static constexpr auto values_of(WeighBy) { return kWeighBy; }
static constexpr std::array<LossSpikes, 2> values_of(LossSpikes) { return {LossSpikes::ignore, LossSpikes::rewind}; }
using Snapshot = SnapshotPlace;
static constexpr auto values_of(Snapshot) { return std::array{Snapshot::automatic, Snapshot::host, Snapshot::device}; }
static constexpr std::array<BadValues, 2> values_of(BadValues) { return {BadValues::stop, BadValues::skip}; }

namespace {

constexpr std::size_t kRunTextLimit = 64 << 10;
constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr std::int64_t kMostThreads = 4096;
constexpr std::int64_t kMostTracedSteps = 10'000;

// ---- The lists of keys: reading and writing both walk them. Keys of a choice (adamw's, sgd's) are visited only under
// it, so that a key which would do nothing is refused.

template <class Spec, class Visitor>
void visit_synthetic(Spec& synthetic, Visitor&& visit) {
  visit("vocabulary", synthetic.vocabulary, Whole{2, kMaxSyntheticVocabulary});
  visit("order", synthetic.order, Whole{1, 2});
  visit("branching", synthetic.branching, Whole{1, kMaxSyntheticVocabulary});
  visit("seed", synthetic.seed);
}

template <class Spec, class Visitor>
void visit_samples(Spec& data, Visitor&& visit) {
  visit("seq", data.seq, Whole{1, kMaxIndex});
  visit("documents", data.documents);
  visit("eval_share", data.eval_share, Real{.least = 0, .most = 1, .below_most = true});
  if (!data.sources.empty()) visit("weigh_by", data.weigh_by);
}

template <class Spec, class Visitor>
void visit_train(Spec& train, Visitor&& visit) {
  visit("steps", train.steps, Whole{0, kMostSteps});
  visit("global_batch", train.global_batch, Whole{1, kMaxIndex});
  visit("eval_every", train.eval_every, Whole{0, kMostSteps});
  visit("eval_batches", train.eval_batches, Whole{1, kMaxIndex});
  visit("save_every", train.save_every, Whole{0, kMostSteps});
  visit("keep", train.keep, Whole{1, kMaxIndex});
  visit("seed", train.seed);
  visit("bad_values", train.bad_values);
  visit("loss_spikes", train.loss_spikes);
  visit("spike_z", train.spike_z, Real{.least = 1, .most = 1e6});
  visit("most_rewinds", train.most_rewinds, Whole{1, kMostRewinds});
  visit("async_save", train.async_save);
  visit("snapshot", train.snapshot);
  visit("deterministic", train.deterministic);
  visit("save_last", train.save_last);
  visit("save_retry", train.save_retry, Real{.least = 0, .most = 86400});
  if (std::string word = "auto"; train.copy_every == kCopyAuto)
    visit("copy_every", word);
  else
    visit("copy_every", train.copy_every, Whole{0, kMostSteps});
  if (!train.backup.empty()) visit("backup", train.backup);
}

template <class Spec, class Visitor>
void visit_optim(Spec& run, Visitor&& visit) {
  auto& optimizer = run.optimizer;
  auto& schedule = run.schedule;
  visit("name", optimizer.kind);
  visit("lr", optimizer.learning_rate, Real{.least = 0, .most = 1000, .above_least = true});
  if (optimizer.kind == OptimizerKind::adamw) {
    visit.pair("betas", optimizer.beta1, optimizer.beta2, Real{.least = 0, .most = 1, .below_most = true});
    visit("eps", optimizer.eps, Real{.least = 0, .most = 1, .above_least = true});
  } else {
    visit("momentum", optimizer.momentum, Real{.least = 0, .most = 1, .below_most = true});
  }
  visit("weight_decay", optimizer.weight_decay, Real{.least = 0, .most = 100});
  visit("clip", optimizer.clip, Real{.least = 0, .most = 1e30});
  visit("schedule", schedule.kind);
  visit("warmup", schedule.warmup, Whole{0, kMostSteps});
  if (schedule.kind == RateKind::wsd) visit("decay", schedule.decay, Whole{0, kMostSteps});
  if (schedule.kind != RateKind::constant) visit("final", schedule.final, Real{.least = 0, .most = 1});
}

template <class Spec, class Visitor>
void visit_run(Spec& run, Visitor&& visit) {
  visit("out", run.out);
  visit("device", run.device);
  visit("server_device", run.server_device);
  visit("threads", run.threads, Whole{0, kMostThreads});
  visit("pin", run.pin);
  visit("deadline", run.deadline, Real{.least = 0.1, .most = 86400});
  visit("trace", run.trace, Whole{0, kMostTracedSteps});
  visit("record_every", run.record_every, Whole{0, kMostSteps});
  visit("check_state", run.check_state, Whole{0, kMostSteps});
  visit("tensorboard", run.tensorboard);
  visit("clock", run.clock);
  if (run.clock != ClockScope::off) visit("clock_error", run.clock_error, Real{.least = 1e-9, .most = 86400});
  visit("autotune", run.autotune);
  visit("stop_signals", run.stop_signals);
  if (!run.machine.empty()) visit("machine", run.machine);
}

// ---- Keys of the design that this version has one value for, or none.

constexpr Later kDataLater[] = {{"split", ""}};
constexpr Later kRunLater[] = {{"ranks", "1"}};

// ---- Reading

// Where a model may come from, besides its fields.
const Keys kModelChoices{"preset", "hf", "from"};

// A choice made on the command line replaces the file's: keys that only make sense under the other choice are dropped.
void unmake_choices(TomlDocument& document) {
  for (const std::string_view choice : kModelChoices) {
    if (!document.set("model", choice)) continue;
    for (const std::string_view key : model_keys() + kModelChoices) document.drop("model", key);
  }
  unmake_data_choices(document);
  if (document.set("optim", "name")) {
    for (const std::string_view key : {"betas", "eps", "momentum"}) document.drop("optim", key);
  }
  unmake_memory_choices(document);
  unmake_sync_choices(document);
  unmake_sparsity_choices(document);
  unmake_lora_choices(document);
  unmake_layout_choices(document);
  if (document.set("optim", "schedule")) {
    for (const std::string_view key : {"decay", "final"}) document.drop("optim", key);
  }
  unmake_precision_choices(document);
  if (document.set("run", "clock") && document.top().table("run").shown("clock") == "'off'")
    document.drop("run", "clock_error");
}

ModelSpec read_preset(const TomlTable& model, const std::string& name) {
  const auto spec = preset(name);
  if (!spec) {
    model.refuse("preset", fmt::format("there is no preset {}", quote_text(name)),
                 fmt::format("the nearest is '{}'; `lockstep presets` lists all", nearest_word(name, preset_names())));
  }
  return read_model_fields(model, *spec);
}

// A resolved run file is complete by itself: when a run is resumed, what its weights started from may be gone.
bool states_every_field(const TomlTable& model) {
  const Keys fields = model_keys();
  return std::all_of(fields.begin(), fields.end(),
                     [&](std::string_view key) { return key == "rope_scaling" || model.has(key); });
}

// The weights come from there, so their shapes and arithmetic do too; a field may repeat what that says.
ModelSpec read_fields_beside(const TomlTable& model, std::string_view source, const ModelSpec& own,
                             std::string_view told_by) {
  const ModelSpec spec = read_model_fields(model, own);
  ModelSpec same = spec;
  same.dropout = own.dropout;
  same.attention_dropout = own.attention_dropout;
  if (same == own) return spec;
  for (const std::string_view key : model_keys()) {
    if (!model.has(key) || key == "dropout" || key == "attention_dropout") continue;
    model.refuse(key, fmt::format("[model] has {} and also {}, which says otherwise than its {}", source, key, told_by),
                 fmt::format("remove {}; beside {} only dropout and attention_dropout may change", key, source));
  }
  return spec;
}

ModelSpec read_hf(const TomlTable& model, const RunSpec& spec, const ModelOfCheckpoint& model_of) {
  const std::filesystem::path config = std::filesystem::path(spec.model_hf) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(config, ignored)) {
    if (states_every_field(model)) return read_model_fields(model);
    const auto resumed = model_of ? model_of("", spec.run.out) : std::nullopt;
    if (resumed) return read_fields_beside(model, "hf", *resumed, "checkpoint");
  }
  return read_fields_beside(model, "hf", read_hf_config(config), "config.json");
}

ModelSpec read_from(const TomlTable& model, const RunSpec& spec, const ModelOfCheckpoint& model_of) {
  if (states_every_field(model)) return read_model_fields(model);
  std::optional<ModelSpec> own;
  try {
    if (model_of) own = model_of(spec.model_from, spec.run.out);
  } catch (const UserError& error) {
    throw UserError(error.code(), model.place("from") + ": " + error.what(), "");
  }
  if (!own) model.refuse("from", "checkpoints are not opened here", "state every field of the model beside from");
  return read_fields_beside(model, "from", *own, "checkpoint");
}

void read_model(const TomlTable& model, const std::filesystem::path& base_folder, const ModelOfCheckpoint& model_of,
                RunSpec& spec) {
  model.refuse_unknown(model_keys() + kModelChoices);
  Keys given;
  for (const std::string_view choice : kModelChoices)
    if (model.has(choice)) given.push_back(choice);
  model("preset", spec.model_preset);
  for (const auto& [key, path] : {std::pair("hf", &spec.model_hf), std::pair("from", &spec.model_from)}) {
    if (!model.has(key)) continue;
    model(key, *path);
    *path = absolute_path(model, key, *path, base_folder);
  }
  if (given.size() > 1) {
    model.refuse(given[1], fmt::format("[model] has both {} and {}", given[0], given[1]), "keep one of the two");
  }
  if (given.empty() && !model.has("family")) {
    model.refuse("", "[model] has neither preset, hf, from nor family",
                 "add preset = \"llama-5m\", hf = \"FOLDER\", from = \"RUN\" or the fields of a model");
  }
  spec.model = model.has("preset") ? read_preset(model, spec.model_preset)
               : model.has("hf")   ? read_hf(model, spec, model_of)
               : model.has("from") ? read_from(model, spec, model_of)
                                   : read_model_fields(model);
}

void read_data(const TomlTable& table, const std::filesystem::path& base_folder, DataSpec& data) {
  Collect known;
  visit_samples(data, known);
  table.refuse_unknown(Keys{"text", "tokens", "token_type", "tokenizer", "synthetic", "example", "source", "weigh_by"} +
                       known.keys + keys_of(kDataLater));
  refuse_later(table, kDataLater);
  table("text", data.text);
  for (std::string& path : data.text) path = absolute_path(table, "text", path, base_folder);
  if (table.has("text") && data.text.empty()) table.refuse("text", "text is empty", "name files or folders");
  table("tokens", data.tokens);
  if (table.has("tokens")) data.tokens = absolute_path(table, "tokens", data.tokens, base_folder);
  read_token_type(table, !data.tokens.empty(), data.token_type);
  table("tokenizer", data.tokenizer);
  if (data.tokenizer == "bytes")
    data.tokenizer.clear();
  else if (table.has("tokenizer"))
    data.tokenizer = absolute_path(table, "tokenizer", data.tokenizer, base_folder);
  table("example", data.example);
  if (const TomlTable inner = table.table("synthetic"); inner.present()) {
    data.synthetic.emplace();
    Collect inside;
    visit_synthetic(*data.synthetic, inside);
    inner.refuse_unknown(inside.keys);
    visit_synthetic(*data.synthetic, inner);
  }
  visit_samples(data, table);
  data.sources = read_sources(table.table("source"), data.eval_share,
                              [&](const TomlTable& inner, std::string_view key, const std::string& path) {
                                return absolute_path(inner, key, path, base_folder);
                              });
  if (table.has("weigh_by") && data.sources.empty())
    table.refuse("weigh_by", "weigh_by does nothing without a mixture of sources",
                 "remove it, or add [data.source.NAME]");
  visit_samples(data, table);  // again, for what only a mixture has
}

void read_optim(const TomlTable& table, RunSpec& spec) {
  Collect known;
  for (const OptimizerKind kind : kOptimizerKinds) {
    for (const RateKind schedule : kRateKinds) {
      RunSpec any;
      any.optimizer.kind = kind;
      any.schedule.kind = schedule;
      visit_optim(any, known);
    }
  }
  table.refuse_unknown(known.keys);
  table("name", spec.optimizer.kind);  // before the list, which depends on both
  table("schedule", spec.schedule.kind);
  Collect used;
  visit_optim(spec, used);
  for (const std::string_view key : known.keys) {
    if (!table.has(key) || std::find(used.keys.begin(), used.keys.end(), key) != used.keys.end()) continue;
    table.refuse(key,
                 fmt::format("'{}' does nothing with name = \"{}\" and schedule = \"{}\"", key,
                             name_of(spec.optimizer.kind), name_of(spec.schedule.kind)),
                 "remove it");
  }
  visit_optim(spec, table);
}

void read_run(const TomlTable& table, const std::filesystem::path& base_folder, RunSettings& run) {
  Collect known;
  RunSettings any;
  any.machine = "any";
  visit_run(any, known);
  table.refuse_unknown(known.keys + keys_of(kRunLater));
  refuse_later(table, kRunLater);
  std::string device(name_of(run.device));
  table("device", device);
  if (std::ranges::find(kRunDevices, device, [](RunDevice d) { return name_of(d); }) == kRunDevices.end())
    table.refuse("device", fmt::format("device is {}", quote_text(device)), "use \"cpu\" or \"cuda\"");
  table("machine", run.machine);  // before the list, which has it where it is stated
  visit_run(run, table);
  if (!run.machine.empty()) {
    const auto place = machine_place(run.machine, table.by_set("machine") ? "" : base_folder);
    if (!place)
      table.refuse("machine", fmt::format("there is no machine {}", quote_text(run.machine)),
                   fmt::format("name a machine file or one of {}", fmt::join(shipped_machines(), ", ")));
    run.machine = *place;
  }
  if (run.autotune && run.device != RunDevice::cuda)
    table.refuse("autotune", fmt::format("autotune does nothing with device = \"{}\"", name_of(run.device)),
                 "remove it");
  if (table.has("clock_error") && run.clock == ClockScope::off)
    table.refuse("clock_error", "'clock_error' does nothing with clock = \"off\"", "remove it");
  for (auto name = run.stop_signals.begin(); name != run.stop_signals.end(); ++name) {
    const std::optional<std::string> known = stop_signal_of(*name);
    if (!known)
      table.refuse("stop_signals", fmt::format("stop_signals has {}", quote_text(*name)),
                   fmt::format("use some of {} (SIGINT and SIGTERM always end a run)", fmt::join(kStopSignals, ", ")));
    if (std::find(run.stop_signals.begin(), name, *known) != name)
      table.refuse("stop_signals", fmt::format("stop_signals has {} twice", *known), "name it once");
    *name = *known;
  }
  if (run.out.empty()) table.refuse("out", "out is empty", "name the folder that the run writes to");
}

void read_train(const TomlTable& table, const std::filesystem::path& base_folder, TrainSpec& train) {
  Collect known;
  visit_train(train, known);
  table.refuse_unknown(known.keys + Keys{"backup"});
  const std::string shown = table.has("copy_every") ? table.shown("copy_every") : "'auto'";
  if (shown.starts_with("'") && shown != "'auto'")
    table.refuse("copy_every", fmt::format("copy_every = {} says nothing", shown), "name steps, as in 4, or \"auto\"");
  if (shown != "'auto'") train.copy_every = 0;  // it is read as a number
  visit_train(train, table);
  table("backup", train.backup);
  if (table.has("backup")) train.backup = absolute_path(table, "backup", train.backup, base_folder);
}

std::string default_out(const std::string& where) {
  const std::string stem = std::filesystem::path(where).stem().string();
  const bool usable = is_plain_text(stem) && stem.find_first_not_of('.') != std::string::npos;
  return "runs/" + (usable ? stem : "run");
}

// `told`: the command line names dp.
void spread(const TomlTable& table, std::int64_t ranks, bool told, LayoutSpec& layout) {
  if (ranks == 0) return;
  const std::string option = fmt::format("--ranks {}", ranks);
  if (told && layout.ranks() != ranks)
    throw UserError(ExitCode::usage,
                    fmt::format("{}: {} makes {} rank{}", option, table.place("dp"), layout.ranks(),
                                layout.ranks() == 1 ? "" : "s"),
                    "leave one of the two out: without dp it is what the other axes leave of the ranks");
  spread_over(layout, ranks, "--ranks ", [&](std::string_view, const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, fmt::format("{}: {}", option, problem), remedy);
  });
}

}  // namespace

RunSpec parse_run_toml(std::string_view text, const std::string& where, const std::filesystem::path& base_folder,
                       std::span<const std::string> sets, const ModelOfCheckpoint& model_of) {
  return parse_run(text, where, base_folder, {.sets = sets, .model_of = model_of});
}

RunSpec parse_run(std::string_view text, const std::string& where, const std::filesystem::path& base_folder,
                  const RunChanges& changes) {
  TomlDocument document(text, where, kRunTextLimit, changes.sets);
  const TomlTable top = document.top();
  bool told_dp = document.set("layout", "dp");
  if (changes.layout) {
    const std::vector<TomlItem> items = layout_items(*changes.layout);
    document.replace("layout", "--layout", items);
    told_dp = told_dp || std::ranges::find(items, "dp", &TomlItem::key) != items.end();
  }
  top.refuse_unknown(Keys{"model", "data", "train", "optim", "layout", "precision", "run", "memory", "sync", "sparsity",
                          "lora", "tuning"});
  unmake_choices(document);
  RunSpec spec;
  spec.run.out = default_out(where);
  read_run(top.table("run"), base_folder, spec.run);  // before the model, which may be asked for by the run's folder
  read_model(top.table("model"), base_folder, changes.model_of, spec);
  read_data(top.table("data"), base_folder, spec.data);
  read_train(top.table("train"), base_folder, spec.train);
  read_optim(top.table("optim"), spec);
  read_layout(top.table("layout"), spec.layout);
  spread(top.table("layout"), changes.ranks, told_dp, spec.layout);
  read_precision(top.table("precision"), spec.precision);
  read_memory(top.table("memory"), spec.memory);
  read_sync(top.table("sync"), spec.sync);
  read_sparsity(top.table("sparsity"), spec.sparsity);
  read_lora(top.table("lora"), spec.lora);
  if (std::string& replay = spec.sync.replay; !replay.empty())
    replay = absolute_path(top.table("sync"), "replay", replay, base_folder);
  if (std::string& folder = spec.memory.offload_folder; !folder.empty())
    folder = absolute_path(top.table("memory"), "offload_folder", folder, base_folder);
  // What is saved beside the training is copied first: a second time what was moved because there is no room for it.
  if (spec.memory.offloads_to() != Offload::none && !top.table("train").has("async_save"))
    spec.train.async_save = false;
  spec.tuning = read_tuning(top.table("tuning"));
  validate(spec, [&](std::string_view section, std::string_view key) {
    if (changes.ranks > 0 && section == "layout" && key == "dp") return fmt::format("--ranks {}", changes.ranks);
    return section == "data.synthetic" ? top.table("data").table("synthetic").place(key)
                                       : top.table(section).place(key);
  });
  return spec;
}

RunSpec read_run_file(const std::filesystem::path& file, std::span<const std::string> sets,
                      const ModelOfCheckpoint& model_of) {
  return read_run(file, {.sets = sets, .model_of = model_of});
}

RunSpec read_run(const std::filesystem::path& file, const RunChanges& changes) {
  return parse_run(read_text_file(file, kRunTextLimit, ExitCode::usage), file.string(), file.parent_path(), changes);
}

std::string example_run_toml() { return std::string(embedded_example_run()); }

std::string to_toml(const RunSpec& spec) {
  TomlWriter writer;
  writer.table("model");
  if (!spec.model_preset.empty()) writer("preset", spec.model_preset);
  if (!spec.model_hf.empty()) writer("hf", spec.model_hf);
  if (!spec.model_from.empty()) writer("from", spec.model_from);
  write_model_fields(spec.model, writer);
  writer.table("data");
  if (!spec.data.text.empty()) writer("text", spec.data.text);
  if (!spec.data.tokens.empty()) writer("tokens", spec.data.tokens);
  if (!spec.data.tokenizer.empty()) writer("tokenizer", spec.data.tokenizer);
  if (spec.data.token_type != TokenType::named) writer("token_type", spec.data.token_type);
  if (spec.data.example) writer("example", true);
  visit_samples(spec.data, writer);
  write_sources(spec.data.sources, writer);
  if (spec.data.synthetic) {
    writer.table("data.synthetic");
    visit_synthetic(*spec.data.synthetic, writer);
  }
  writer.table("train");
  visit_train(spec.train, writer);
  writer.table("optim");
  visit_optim(spec, writer);
  writer.table("layout");
  write_layout(spec.layout, writer);
  writer.table("precision");
  write_precision(spec.precision, writer);
  writer.table("memory");
  write_memory(spec.memory, writer);
  writer.table("sync");
  write_sync(spec.sync, writer);
  writer.table("sparsity");
  write_sparsity(spec.sparsity, writer);
  writer.table("lora");
  write_lora(spec.lora, writer);
  writer.table("run");
  visit_run(spec.run, writer);
  write_tuning(spec.tuning, writer);
  return std::move(writer).text();
}

}  // namespace lockstep
