#include "cli/run_arguments.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "cli/launched_rank.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

namespace {

// The built-in example is not a file that a user can edit: a run shorter than its warm-up gets a shorter warm-up.
RunSpec read_example(RunChanges changes) {
  const auto parse = [&] { return parse_run(example_run_toml(), "example", ".", changes); };
  const auto sets_warmup = [](const std::string& set) { return set.starts_with("optim.warmup="); };
  if (std::ranges::any_of(changes.sets, sets_warmup)) return parse();
  const std::int64_t usual = parse_run_toml(example_run_toml(), "example", ".").schedule.warmup;
  const std::span<const std::string> asked = changes.sets;
  std::vector<std::string> sets(asked.begin(), asked.end());
  const auto parse_with = [&](std::int64_t warmup) {
    sets.resize(asked.size());
    sets.push_back(fmt::format("optim.warmup={}", warmup));
    changes.sets = sets;
    return parse();
  };
  const std::int64_t steps = parse_with(0).train.steps, fitting = steps / 4;
  if (steps == 0 || steps >= usual) {
    changes.sets = asked;
    return parse();
  }
  if (launched_rank() == 0)
    fmt::print(stderr, "lockstep: the built-in example's warm-up of {} steps is cut to {}, since the run has {}\n",
               usual, fitting, steps);
  return parse_with(fitting);
}

}  // namespace

void RunArguments::add_to(CLI::App& command) {
  command.add_option("run", file, "Run file (TOML); the built-in example when left out")->type_name("RUN.toml");
  command.add_option("--set", sets, "A setting over the file's, such as train.steps=300; may be given several times")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

RunSpec RunArguments::read(const std::optional<std::string>& layout, std::int64_t ranks) const {
  // When a run is resumed, what its weights started from may be gone.
  const auto model_of = [this](const std::filesystem::path& from, const std::string& out) {
    std::optional<ModelSpec> model;
    if (!resumed.empty()) model = find_model(resumed == "auto" ? out : resumed);
    if (!model && !from.empty()) model = require_model(from);
    return model;
  };
  const RunChanges changes{.sets = sets, .layout = layout, .ranks = ranks, .model_of = model_of};
  const RunSpec spec = file.empty()   ? read_example(changes)
                       : text.empty() ? read_run(file, changes)
                                      : parse_run(text, file, ".", changes);
  if (spec.memory.gathered == kGatheredAuto && !takes_auto)
    throw UserError(ExitCode::usage, "memory.gathered = \"auto\": only train and plan choose its number",
                    "name a number of MiB, as in --set memory.gathered=0");
  return spec;
}

RunSpec RunArguments::read_for_any_layout() const {
  RunArguments others = *this;
  std::erase_if(others.sets, sets_layout);
  constexpr const char* kLayout = "zero=3";  // beside which every other key acts
  const auto reads = [&](const char* layout) -> std::optional<RunSpec> {
    try {
      return others.read(layout);
    } catch (const UserError&) {  // the first says why
      return std::nullopt;
    }
  };
  try {
    RunSpec spec = others.read(kLayout);
    spec.layout = {};
    return spec;
  } catch (const UserError&) {
    // Replicas of their own weights refuse to be sharded.
    if (std::optional<RunSpec> spec = reads("dp=1"); spec && spec->sync.takes_local_steps()) {
      spec->layout = {};
      return *spec;
    }
    // Asynchronous training is of parameter servers.
    if (std::optional<RunSpec> spec = reads("dp_kind=server"); spec && spec->sync.kind == SyncKind::async) {
      spec->layout = {};
      return *spec;
    }
    std::erase_if(others.sets, [](const std::string& set) { return set.starts_with("sync.feedback="); });
    others.sets.insert(others.sets.end(), {"sync.compress=none", "sync.compress_weights=none"});
    if (!reads(kLayout)) throw;  // it is something else
  }
  refuse_compression();
}

void refuse_unflushed(const LayoutSpec& layout) {
  if (!layout.unflushed()) return;
  throw UserError(ExitCode::usage,
                  fmt::format("schedule \"{}\" changes what is learned, so layouts are not equal under it",
                              name_of(layout.schedule)),
                  "use schedule=1f1b");
}

void refuse_compression() {
  throw UserError(ExitCode::usage,
                  "[sync] compresses messages, which changes what is learned, and not every layout sends them",
                  "use --set sync.compress=none and --set sync.compress_weights=none");
}

std::vector<std::string> RunArguments::layout_sets() const {
  std::vector<std::string> own;
  std::ranges::copy_if(sets, std::back_inserter(own), sets_layout);
  return own;
}

void LayoutArguments::add_to(CLI::App& command, int most_ranks, const std::string& usual_ranks) {
  command
      .add_option("--ranks", ranks,
                  fmt::format("All ranks; layout.dp is what pp, cp and tp leave of them [{}]", usual_ranks))
      ->check(CLI::Range(1, most_ranks).description(""))
      ->type_name("N");
  command
      .add_option("--layout", layout,
                  "The whole layout, as in dp=4,micro=2, in place of the file's; --set layout.KEY changes one key")
      ->type_name("KEY=VALUE,..");
}

RunSpec LayoutArguments::read(const RunArguments& arguments) const { return arguments.read(layout, ranks); }

bool LayoutArguments::say_ranks(const RunArguments& arguments) const {
  const auto sets_dp = [](const std::string& set) { return set.starts_with("layout.dp="); };
  if (ranks > 0 || std::ranges::any_of(arguments.sets, sets_dp)) return true;
  return layout && std::ranges::count(layout_items(*layout), "dp", &TomlItem::key) > 0;
}

}  // namespace lockstep
