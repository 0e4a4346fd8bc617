// Which settings all ranks of a run must have alike: every key of the run file but those that are listed here.
#include "spec/run/run_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "spec/run/run_toml.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

// Of a rank's own machine, or a path whose content is compared (train/start_agreement.h). A key that is added to the
// run file is compared, unless its author can say here why ranks may differ in it.
const std::set<std::string> kMayDiffer = {
    "run.out",    "run.threads", "run.pin",     "run.deadline", "model.preset",         "model.hf",
    "model.from", "data.text",   "data.tokens", "data.example", "layout.schedule_file", "memory.offload_folder"};

RunSpec run_of(const std::vector<std::string>& sets, const std::string& text = example_run_toml()) {
  return parse_run_toml(text, "example", "/", sets);
}

std::map<std::string, std::string> map_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  return {settings.begin(), settings.end()};
}

// Runs under whose choices every key of the run file acts.
std::vector<RunSpec> runs() {
  return {
      run_of({}),
      run_of({"optim.name=sgd", "optim.schedule=wsd", "optim.decay=10", "memory.recompute=projections",
              "model.dropout=0.1", "model.attention_dropout=0.1"}),
      run_of({"precision.compute=bf16"}),
      run_of({"precision.compute=fp16"}),
      run_of({"precision.compute=fp8"}),
      run_of({"train.copy_every=5", "train.loss_spikes=rewind", "train.save_every=10"}),
      run_of({"layout.dp=2", "layout.zero=3", "layout.micro=2", "train.global_batch=32"}),
      run_of({"layout.dp=4", "layout.zero=3", "layout.shard=2", "train.global_batch=32"}),
      run_of({"layout.dp=4", "layout.dp_kind=central", "train.global_batch=32"}),
      run_of({"layout.dp=2", "layout.dp_kind=server", "train.global_batch=32"}),
      run_of({"layout.dp=2", "layout.dp_kind=server", "train.global_batch=32", "run.device=cuda"}),
      run_of({"layout.dp=8", "train.global_batch=32", "train.steps=8", "optim.warmup=2", "train.eval_every=0",
              "train.save_every=0", "sync.kind=mixed", "sync.every=2", "sync.group=2", "sync.outer=nesterov"}),
      run_of({"sparsity.kind=unstructured", "sparsity.begin=2", "sparsity.end=10"}),
      run_of({"layout.dp=2", "layout.dp_kind=server", "train.global_batch=32", "sync.kind=async", "sync.staleness=3",
              "sync.replay=other/arrivals.jsonl"}),
      run_of({"layout.pp=2", "layout.micro=4", "layout.tp=2", "layout.cp=2", "train.global_batch=32"}),
      run_of({"layout.pp=2", "layout.micro=4", "layout.schedule=interleaved", "train.global_batch=32",
              "memory.recompute=full", "memory.recompute_stages=1+0"}),
      run_of(
          {"run.device=cuda", "run.autotune=true", "tuning.gpu=a", "tuning.library=b", "tuning.products=[\"c -> d\"]"}),
      run_of({"memory.offload_activations=disk"}),
      run_of({"run.device=cuda", "memory.offload_optimizer=host"}),
      run_of({"model.preset=llama3.2-1b", "data.seq=16"}),
      run_of({"model.preset=qwen2.5-0.5b", "data.seq=16"}),
      run_of({}, "[model]\npreset = \"llama-1m\"\n[data.synthetic]\nvocabulary = 64\n"),
      run_of({}, "[model]\npreset = \"llama-1m\"\n[data]\ntokens = \"some/tokens\"\n"),
      run_of({}, "[model]\npreset = \"llama-1m\"\n[data]\ntext = \"some/text\"\n"),
  };
}

// Other values that a key may have, in the hope that one of them is allowed beside the rest.
std::vector<std::string> other_values(const std::string& value) {
  std::vector<std::string> all;
  if (value == "true" || value == "false") return {value == "true" ? "false" : "true"};
  if (value.starts_with("\"")) {
    for (const char* word :
         {"on",      "off",         "skip",        "linear",  "constant", "wsd",     "sgd",   "fp64",    "bf16",
          "fp32",    "elementwise", "projections", "none",    "central",  "ddp",     "micro", "step",    "never",
          "forward", "ring",        "tree",        "ulysses", "plain",    "zigzag",  "zb-h1", "afab",    "even",
          "cost",    "cuda",        "cpu",         "llama",   "gpt2",     "qwen2",   "qwen3", "mistral", "other",
          "/other",  "layernorm",   "gelu",        "swiglu",  "llama3",   "linear",  "1x2",   "2x1",     "0+1",
          "disk",    "1MiB",        "host",        "ignore",  "partial",  "average", "dense", "auto",    "masked"})
      all.push_back(fmt::format("\"{}\"", word));
    return all;
  }
  if (value.starts_with("[\"")) return {"[\"/other\"]", "[\"e -> f\"]", "[\"SIGHUP\"]"};
  if (value.starts_with("[")) return {"[0.8, 0.9]"};
  const double number = std::stod(value);
  const bool whole = value.find_first_of(".e") == std::string::npos;
  for (const double other : {number + 1, number * 2, number / 2, number - 1, number * 1.5, number + 8, 4.0, 0.25})
    all.push_back(whole ? fmt::format("{}", static_cast<std::int64_t>(other)) : fmt::format("{:.3}", other));
  if (!whole) all.push_back("0.5");
  return all;
}

// The run with another value of that setting, if any is allowed.
std::optional<RunSpec> with_other(const RunSpec& run, const std::string& name, const std::string& value) {
  for (const std::string& other : other_values(value)) {
    if (other == value) continue;
    try {
      const std::vector<std::string> sets{name + "=" + other};
      RunSpec changed = parse_run_toml(to_toml(run), "resolved", "/", sets);
      if (changed.model_preset != run.model_preset && name != "model.preset") continue;
      if (map_of(settings_of(to_toml(changed)))[name] != value) return changed;
    } catch (const UserError&) {  // not this one
    }
  }
  return std::nullopt;
}

TEST(SettingsAlike, AreAllKeysOfTheRunFileButThoseThatMayDiffer) {
  std::set<std::string> seen, tried;
  for (const RunSpec& run : runs()) {
    const auto alike = settings_alike(run);
    for (const auto& setting : settings_of(to_toml(run))) {
      const auto& [name, value] = setting;
      seen.insert(name);
      EXPECT_EQ(may_differ_by_rank(name), kMayDiffer.contains(name)) << name;
      EXPECT_EQ(std::ranges::find(alike, setting) == alike.end(), kMayDiffer.contains(name)) << name;
      if (tried.contains(name) || name == "model.preset" || name == "data.example") continue;  // choices: below
      const std::optional<RunSpec> changed = with_other(run, name, value);
      if (!changed) continue;
      tried.insert(name);
      EXPECT_EQ(settings_alike(*changed) == alike, kMayDiffer.contains(name)) << name << " was " << value;
    }
  }
  // Every key has had another value, but what a model's family fixes.
  std::set<std::string> untried;
  std::ranges::set_difference(seen, tried, std::inserter(untried, untried.end()));
  std::erase_if(untried, [](const std::string& name) { return name.starts_with("model.") || name == "data.example"; });
  std::erase_if(untried,
                [](const std::string& name) { return name.starts_with("sync.compress"); });  // do nothing alone
  EXPECT_THAT(untried, ::testing::IsEmpty());
  for (const char* key : {"model.layers",
                          "data.seq",
                          "data.synthetic.order",
                          "train.seed",
                          "optim.lr",
                          "optim.momentum",
                          "optim.decay",
                          "layout.cp_kind",
                          "layout.shard",
                          "layout.reshard",
                          "layout.prefetch",
                          "layout.wrap",
                          "layout.bucket",
                          "precision.compute",
                          "precision.loss_scale",
                          "precision.loss_scale_growth",
                          "memory.recompute_blocks",
                          "memory.recompute_every",
                          "memory.recompute_stages",
                          "memory.offload_update",
                          "memory.offload_activations",
                          "memory.offload_blocks",
                          "run.device",
                          "run.trace",
                          "tuning.products"})
    EXPECT_TRUE(tried.contains(key)) << key;
}

// In the order of the run file, so that a choice is named before what belongs to it.
TEST(SettingsAlike, NameTheChoiceFirst) {
  const auto a = settings_alike(run_of({})), b = settings_alike(run_of({"optim.name=sgd"}));
  const auto first = std::ranges::mismatch(a, b);
  EXPECT_EQ(first.in1->first, "optim.name");
}

TEST(SettingsAlike, OfWeightsAndSchedulesFromFilesAreTheirContents) {
  const TemporaryFolder folder;
  RunSpec with = run_of({"layout.pp=2", "layout.micro=4", "train.global_batch=32"}), without = with;
  for (const char* name : {"a", "b", "c"}) std::ofstream(folder / name) << (*name == 'c' ? "another" : "a schedule");
  with.layout.schedule_file = folder / "a";
  without.layout.schedule_file = folder / "b";
  EXPECT_EQ(settings_alike(with), settings_alike(without)) << "the path counts";
  without.layout.schedule_file = folder / "c";
  EXPECT_NE(settings_alike(with), settings_alike(without)) << "the text does not count";
  for (std::string RunSpec::*path : {&RunSpec::model_hf, &RunSpec::model_from}) {
    RunSpec imported = run_of({});
    imported.*path = "/a";
    EXPECT_NE(settings_alike(imported), settings_alike(run_of({}))) << "random weights beside imported ones";
    RunSpec elsewhere = imported;
    elsewhere.*path = "/b";
    EXPECT_EQ(settings_alike(imported), settings_alike(elsewhere));
  }
  RunSpec preset = run_of({}), text = preset;
  preset.model_preset = "of the same fields";
  text.data.example = false;
  text.data.text = {"/the/same"};
  EXPECT_EQ(settings_alike(preset), settings_alike(run_of({})));
  EXPECT_EQ(settings_alike(text), settings_alike(run_of({})));
}

}  // namespace
}  // namespace lockstep::tests
