// A run's TOML: what it means, what it refuses and in which words, settings from the command line, and that the
// resolved file says the same run to the last bit.
#include "spec/run/run_toml.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "spec/model/hf_config.h"
#include "spec/model/presets.h"

namespace lockstep {
namespace {

using Sets = std::vector<std::string>;

const std::filesystem::path kSource = LOCKSTEP_SOURCE_DIR;

// Four lines: [model], preset, [data], example.
const std::string kBase = "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\n";

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

// The base with a line more in a section: line 2 of [model], line 4 of [data], line 6 of any other.
std::string with(const std::string& section, const std::string& line) {
  const std::string header = "[" + section + "]\n";
  const std::size_t at = kBase.find(header);
  if (at == std::string::npos) return kBase + header + line + "\n";
  std::string text = kBase;
  return text.insert(at + header.size(), line + "\n");
}

std::string without(std::string text, const std::string& line) {
  return text.erase(text.find(line + "\n"), line.size() + 1);
}

RunSpec parse(const std::string& text, const Sets& sets = {}) { return parse_run_toml(text, "a/run.toml", "/a", sets); }

// The message of a refusal, checked for what every one has.
std::string refusal(const std::string& text, const Sets& sets = {}, ExitCode code = ExitCode::usage) {
  try {
    parse(text, sets);
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), code) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_NE(what.find("; "), std::string::npos) << "no remedy: " << what;
    EXPECT_TRUE(code != ExitCode::usage || what.starts_with("a/run.toml") || what.starts_with("--set ")) << what;
    return what;
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 500);
  return "";
}

struct Bad {
  const char* section;
  const char* line;
  std::vector<std::string> words;
};

void expect_refused(std::span<const Bad> cases) {
  for (const auto& [section, line, words] : cases) {
    SCOPED_TRACE(std::string(section) + ": " + line);
    const std::string what = refusal(with(section, line));
    for (const std::string& word : words) EXPECT_NE(what.find(word), std::string::npos) << word << " not in: " << what;
  }
}

TEST(RunToml, WhatIsLeftOutHasItsDefault) {
  RunSpec expected;
  expected.model = *preset("llama-1m");
  expected.model_preset = "llama-1m";
  expected.data.example = true;
  expected.run.out = "runs/run";
  EXPECT_EQ(parse(kBase), expected);
  EXPECT_EQ(parse_run_toml(kBase, "x/y/tiny.toml", "", {}).run.out, "runs/tiny");
  EXPECT_EQ(parse_run_toml(kBase, "..", "", {}).run.out, "runs/run") << "never the parent folder";
}

TEST(RunToml, EveryKeyActs) {
  const RunSpec run = parse(R"([model]
preset = "llama-1m"
vocabulary = 300
[data]
tokens = "../t.bin"
seq = 64
eval_share = 0.25
[train]
steps = 7
global_batch = 6
eval_every = 2
eval_batches = 3
save_every = 4
keep = 5
seed = 9223372036854775807
bad_values = "skip"
async_save = false
save_retry = 2.5
[optim]
name = "adamw"
lr = 1
betas = [0.5, 0.75]
eps = 1e-6
weight_decay = 0.25
clip = 0
schedule = "wsd"
warmup = 3
decay = 4
final = 0.5
[layout]
micro = 3
[precision]
compute = "bf16"
gradients = "bf16"
moments = "bf16"
[run]
out = "somewhere"
device = "cpu"
threads = 2
stop_signals = ["USR2", "SIGHUP"]
)");
  EXPECT_EQ(run.model.vocabulary, 300);
  const DataSpec data{.text = {}, .tokens = "/t.bin", .synthetic = {}, .seq = 64, .eval_share = 0.25};
  EXPECT_EQ(run.data, data);
  const TrainSpec train{.steps = 7,
                        .global_batch = 6,
                        .eval_every = 2,
                        .eval_batches = 3,
                        .save_every = 4,
                        .keep = 5,
                        .seed = 9223372036854775807u,
                        .bad_values = BadValues::skip,
                        .async_save = false,
                        .save_retry = 2.5};
  EXPECT_EQ(run.train, train);
  const OptimizerSpec optimizer{.kind = OptimizerKind::adamw,
                                .learning_rate = 1,
                                .beta1 = 0.5,
                                .beta2 = 0.75,
                                .eps = 1e-6,
                                .weight_decay = 0.25,
                                .clip = 0};
  EXPECT_EQ(run.optimizer, optimizer);
  const LearningRateSpec schedule{.kind = RateKind::wsd, .warmup = 3, .decay = 4, .final = 0.5};
  EXPECT_EQ(run.schedule, schedule);
  EXPECT_EQ(run.layout.micro, 3);
  EXPECT_EQ(run.precision, PrecisionSpec(Precision::bf16, StateType::bf16, StateType::bf16));
  const RunSettings settings{
      .out = "somewhere", .device = RunDevice::cpu, .threads = 2, .stop_signals = {"SIGUSR2", "SIGHUP"}};
  EXPECT_EQ(run.run, settings);
  EXPECT_EQ(parse(with("run", "stop_signals = []")).run.stop_signals, std::vector<std::string>{});
  EXPECT_EQ(parse(with("optim", "name = \"sgd\"\nmomentum = 0.5")).optimizer.momentum, 0.5);
}

TEST(RunToml, PathsAreReadFromTheFilesFolderAndSettingsFromTheShells) {
  const std::string no_source = without(kBase, "example = true");
  EXPECT_EQ(parse(no_source + "text = \"x/../b.txt\"").data.text, std::vector<std::string>{"/a/b.txt"});
  EXPECT_EQ(parse(no_source + "text = [\"b\", \"/c\"]").data.text, (std::vector<std::string>{"/a/b", "/c"}));
  EXPECT_EQ(parse(kBase, {"data.tokens=t.bin"}).data.tokens, (std::filesystem::current_path() / "t.bin").string());
}

TEST(RunToml, APresetsFieldsCanBeOverridden) {
  ModelSpec expected = *preset("llama-5m");  // heads 8 of 32, kv_heads 4
  expected.width = 512;
  expected.head_width = 64;  // followed from width and heads, and still does
  expected.dropout = 0.5;
  const std::string text = "[model]\npreset = \"llama-5m\"\nwidth = 512\ndropout = 0.5\n[data]\nexample = true";
  EXPECT_EQ(parse(text).model, expected);
  EXPECT_EQ(parse("[model]\npreset = \"gpt2\"\nwidth = 512\nheads = 8\n[data]\nexample = true").model.kv_heads, 8);
  EXPECT_EQ(parse("[model]\npreset = \"llama3.1-405b\"\nrope_scaling.factor = 2\n[data]\nexample = true")
                .model.rope_scaling->factor,
            2);
}

TEST(RunToml, AHuggingFaceFolderGivesTheModel) {
  const std::string folder = kSource / "tests/golden/llama-tiny";
  ModelSpec expected = read_hf_config(folder + "/config.json");
  const std::string synthetic = "[data]\nseq = 8\n[data.synthetic]\nvocabulary = 8\n";
  const std::string text = "[model]\nhf = \"" + folder + "\"\n";
  EXPECT_EQ(parse(text + synthetic).model, expected);
  EXPECT_EQ(parse(text + synthetic).model_hf, folder);
  const std::string same = "layers = " + std::to_string(expected.layers) + "\n";
  EXPECT_EQ(parse(text + same + synthetic).model, expected) << "what config.json says may be repeated";
  expected.dropout = 0.25;
  EXPECT_EQ(parse(text + "dropout = 0.25\n" + synthetic).model, expected);

  EXPECT_NE(refusal(text + "layers = 77\n" + synthetic).find("run.toml:3: [model] has hf and also layers"),
            std::string::npos);
  refusal("[model]\nhf = \"/no/such/folder\"\n" + synthetic, {}, ExitCode::bad_input_file);

  // A resolved run file stands by itself when the folder is gone.
  RunSpec gone = parse(text + synthetic);
  gone.model_hf = "/no/such/folder";
  EXPECT_EQ(parse(to_toml(gone)), gone);
}

// Stands for the checkpoints of /a/runs/one, and for those of a run that is resumed in runs/resumed.
std::optional<ModelSpec> model_of_one(const std::filesystem::path& from, const std::string& out) {
  if (out == "runs/resumed") return *preset("llama-1m");
  EXPECT_EQ(out, "runs/run");
  if (from.empty()) return std::nullopt;
  if (from == "/a/runs/one") return *preset("llama-5m");
  throw UserError(ExitCode::checkpoint, from.string() + " holds no whole checkpoint", "name another");
}

TEST(RunToml, ACheckpointGivesTheModel) {
  const auto read = [](const std::string& text, const Sets& sets = {}) {
    return parse_run_toml(text, "a/run.toml", "/a", sets, model_of_one);
  };
  const auto refused = [&](const std::string& text, ExitCode code = ExitCode::usage) -> std::string {
    try {
      read(text);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "accepted";
  };
  const std::string data = "[data]\nexample = true\n", from = "[model]\nfrom = \"runs/one\"\n";
  ModelSpec expected = *preset("llama-5m");
  EXPECT_EQ(read(from + data).model, expected);
  EXPECT_EQ(read(from + data).model_from, "/a/runs/one");
  EXPECT_EQ(read(from + "layers = 4\n" + data).model, expected) << "what the checkpoint says may be repeated";
  expected.attention_dropout = 0.25;
  EXPECT_EQ(read(from + "attention_dropout = 0.25\n" + data).model, expected);

  EXPECT_EQ(refused(from + "layers = 77\n" + data),
            "a/run.toml:3: [model] has from and also layers, which says otherwise than its checkpoint; remove layers; "
            "beside from only dropout and attention_dropout may change");
  EXPECT_EQ(refused("[model]\nfrom = \"runs/two\"\n" + data, ExitCode::checkpoint),
            "a/run.toml:2: /a/runs/two holds no whole checkpoint; name another");
  EXPECT_NE(refused(from + "preset = \"llama-1m\"\n" + data).find("has both preset and from"), std::string::npos);
  EXPECT_NE(refused(from + "hf = \"x\"\n" + data).find("has both hf and from"), std::string::npos);
  EXPECT_NE(refused("[model]\nfrom = \"\"\n" + data).find("from = '' is not a path"), std::string::npos);

  // A setting unmakes the file's model, whichever way it came.
  EXPECT_EQ(read(kBase, {"model.from=/a/runs/one"}).model, *preset("llama-5m"));
  EXPECT_EQ(read(kBase, {"model.from=/a/runs/one"}).model_preset, "");
  EXPECT_EQ(read(from + data, {"model.preset=llama-1m"}).model_from, "");

  // A resolved run file stands by itself, and nobody opens a checkpoint for it.
  const RunSpec resolved = read(from + "dropout = 0.5\n" + data);
  EXPECT_EQ(parse(to_toml(resolved)), resolved);
  EXPECT_NE(refusal(from + data).find("run.toml:2: checkpoints are not opened here"), std::string::npos);

  // So does a run that is resumed by the file that began it: the model is known from its own checkpoints.
  const std::string resumed = data + "[run]\nout = \"runs/resumed\"\n";
  EXPECT_EQ(read("[model]\nfrom = \"runs/gone\"\n" + resumed).model, *preset("llama-1m"));
  EXPECT_EQ(read("[model]\nhf = \"gone\"\n" + resumed).model, *preset("llama-1m"));
  EXPECT_NE(refused("[model]\nhf = \"gone\"\n" + data, ExitCode::bad_input_file).find("config.json"),
            std::string::npos);
}

TEST(RunToml, AMisspeltNameComesWithTheNearest) {
  const Bad cases[] = {
      {"trian", "steps = 3", {"run.toml:5: unknown table 'trian'", "'train'"}},
      {"memory", "recompute = \"full\"", {"'recompute'", "one of \"none\", \"elementwise\", \"projections\""}},
      {"memory", "offload = true", {"offload = true is not in this version", "leave offload out"}},
      {"memory", "recompute_blocks = 2", {"'recompute_blocks' does nothing without recompute"}},
      {"model", "layer = 3", {"run.toml:2: unknown key 'layer' in [model]", "'layers'"}},
      {"data", "sequence = 3", {"run.toml:4: unknown key 'sequence' in [data]", "'seq'"}},
      {"data", "synthetic.sed = 3", {"unknown key 'sed' in [data.synthetic]", "'seed'"}},
      {"train", "step = 3", {"run.toml:6: unknown key 'step' in [train]", "'steps'"}},
      {"optim", "beta = 3", {"unknown key 'beta' in [optim]", "'betas'"}},
      {"layout", "mirco = 3", {"unknown key 'mirco' in [layout]", "'micro'"}},
      {"precision", "computer = 3", {"unknown key 'computer' in [precision]", "'compute'"}},
      {"run", "thread = 3", {"unknown key 'thread' in [run]", "'threads'"}},
  };
  expect_refused(cases);
  EXPECT_NE(refusal("[model]\npreset = \"lama-1m\"\n")
                .find("run.toml:2: there is no preset 'lama-1m'; the nearest is "
                      "'llama-1m'"),
            std::string::npos);
}

TEST(RunToml, AWrongTypeOrRangeIsNamedWithWhatIsExpected) {
  const Bad cases[] = {
      {"model", "vocabulary = \"many\"", {"run.toml:2: 'vocabulary' in [model]", "('many')", "a whole number from 1"}},
      {"model", "kv_heads = 3", {"run.toml:1: heads (4) is not a multiple of kv_heads (3)"}},
      {"data", "seq = 0", {"run.toml:4: 'seq' in [data]", "(0)", "from 1 to 2147483647"}},
      {"data", "seq = 1.5", {"'seq'", "(1.5)", "a whole number"}},
      {"data", "eval_share = 1.0", {"'eval_share'", "at least 0 and below 1"}},
      {"data", "eval_share = nan", {"'eval_share'", "(nan)"}},
      {"data", "eval_share = [1]", {"'eval_share'", "(an array)"}},
      {"data", "text = 3", {"'text'", "a string"}},
      {"data", "text = [\"a\", 3]", {"'text'", "an array of strings"}},
      {"data", "text = []", {"text is empty"}},
      {"data", "text = \"\"", {"text = '' is not a path"}},
      {"data", "text = \"a\\u0000b\"", {"'text'", "control characters"}},
      {"data", "text = [\"a\", \"b\\nc\"]", {"'text'", "control characters"}},
      {"data", "text = {a = 1}", {"'text'", "(a table)"}},
      {"data", "tokens = true", {"'tokens'", "(true)", "a string"}},
      {"data", "synthetic = 3", {"'synthetic'", "a table"}},
      {"data", "synthetic.order = 3", {"'order' in [data.synthetic]", "from 1 to 2"}},
      {"data", "synthetic.vocabulary = 1", {"'vocabulary' in [data.synthetic]"}},
      {"data", "tokenizer = \"bpe\"", {"tokenizer = 'bpe' is not in this version", "'bytes'"}},
      {"train", "steps = 1.5", {"run.toml:6: 'steps'", "from 0 to 1000000000000"}},
      {"train", "steps = -5", {"'steps'", "(-5)"}},
      {"train", "steps = 2024-01-01", {"'steps'", "a date"}},
      {"train", "global_batch = 0", {"'global_batch'"}},
      {"train", "eval_batches = 0", {"'eval_batches'"}},
      {"train", "keep = 0", {"'keep'"}},
      {"train", "seed = -1", {"'seed'", "from 0 to 2^63 - 1"}},
      {"train", "bad_values = \"ignore\"", {"'bad_values'", "one of \"stop\", \"skip\""}},
      {"optim", "name = \"adam\"", {"'name'", "one of \"adamw\", \"sgd\""}},
      {"optim", "lr = 0", {"'lr'", "above 0"}},
      {"optim", "lr = inf", {"'lr'", "(inf)"}},
      {"optim", "lr = \"1e-3\"", {"'lr'", "a number"}},
      {"optim", "betas = 0.9", {"'betas'", "[first, second]"}},
      {"optim", "betas = [0.9]", {"'betas'", "[first, second]"}},
      {"optim", "betas = [0.9, 1.0]", {"'betas'", "below 1"}},
      {"optim", "betas = [0.9, \"x\"]", {"'betas'"}},
      {"optim", "eps = 0.0", {"'eps'"}},
      {"optim", "momentum = 0.9", {"'momentum' does nothing with name = \"adamw\"", "remove it"}},
      {"optim", "name = \"sgd\"\nbetas = [0.9, 0.9]", {"run.toml:7: 'betas' does nothing with name = \"sgd\""}},
      {"optim", "name = \"sgd\"\nmomentum = 1", {"'momentum'", "below 1"}},
      {"optim", "weight_decay = -0.1", {"'weight_decay'"}},
      {"optim", "clip = -1", {"'clip'"}},
      {"optim", "schedule = \"step\"", {"'schedule'", "\"constant\", \"linear\", \"cosine\", \"wsd\""}},
      {"optim", "decay = 5", {"'decay' does nothing", "schedule = \"cosine\""}},
      {"optim", "schedule = \"constant\"\nfinal = 0.5", {"'final' does nothing"}},
      {"optim", "final = 1.5", {"'final'", "at most 1"}},
      {"layout", "micro = 0", {"'micro'"}},
      {"precision", "compute = \"fp16\"", {"loss scaling", "use \"bf16\""}},
      {"precision", "compute = \"fp8\"", {"'compute'", "one of \"fp64\", \"fp32\", \"bf16\""}},
      {"precision", "gradients = \"fp16\"", {"'gradients'", "one of \"fp32\", \"bf16\""}},
      {"precision", "moments = 16", {"'moments'", "one of \"fp32\", \"bf16\""}},
      {"precision", "loss_scale = 2", {"loss_scale = 2 is not in this version"}},
      {"run", "out = \"\"", {"out is empty"}},
      {"run", "out = 3", {"'out'", "a string"}},
      {"run", "device = \"tpu\"", {"device is 'tpu'", "use \"cpu\" or \"cuda\""}},
      {"run", "threads = 5000", {"'threads'", "from 0 to 4096"}},
      {"run", "ranks = 2", {"ranks = 2 is not in this version"}},
      {"run", "out = ", {"run.toml:6: not valid TOML"}},
  };
  expect_refused(cases);
}

TEST(RunToml, TextThatIsNoTomlComesWithTheParsersReason) {
  const auto says = [](const std::string& text, const std::string& place, const std::string& reason) {
    const std::string words = refusal(text);
    EXPECT_EQ(words.find("a/" + place), 0u) << words;
    const std::size_t at = words.find(": ", place.size());
    EXPECT_NE(words.find(reason, at), std::string::npos) << words;
    EXPECT_NE(words.find("; "), std::string::npos) << words;
    EXPECT_EQ(words.find_first_of("\n\x01"), std::string::npos) << words;
    EXPECT_LT(words.size(), 400u) << words;
  };
  says("[train]\nsteps = \n", "run.toml:2: not valid TOML at column ", "value");
  says("[train]\nsteps = 3\nsteps = 4\n", "run.toml:3: not valid TOML at column ", "redefine existing");
  says("[train]\nsteps = 3x\n", "run.toml:2: not valid TOML at column ", "integer");
  says("[train\nsteps = 3\n", "run.toml:1: not valid TOML at column ", "table");
  says("[train]\nname = 'a\n", "run.toml:2: not valid TOML at column ", "string");
  says("a\x01" + std::string(5000, 'k') + "\n", "run.toml:1: not valid TOML at column ", ": ");
  says("[train]\nsteps = 1\n\n[#\n[data]\n", "run.toml:4: not valid TOML", "the parser cannot tell");  // it asserts
}

TEST(RunToml, TheUsualLayoutMayBeWrittenOut) {
  EXPECT_EQ(parse(with("layout",
                       "dp = 1\npp = 1\ncp = 1\ntp = 1\nzero = 0\nchunks = 1\nreduce = \"canonical\"\n"
                       "grad_sync = \"step\"\nschedule = \"1f1b\"\nsp = \"off\"\n"
                       "dp_kind = \"ddp\"\noverlap = \"on\"\nuneven = \"off\"\nbucket = 25")),
            parse(kBase));
}

TEST(RunToml, ContradictionsAreNamed) {
  const Bad cases[] = {
      {"data", "seq = 4000", {"run.toml:4: seq (4000) is beyond the model's max_positions (", "use seq = "}},
      {"data", "tokens = \"t\"", {"[data] names both tokens and example", "keep one"}},
      {"data", "text = \"t\"", {"run.toml:5: [data] names both text and example"}},
      {"data", "synthetic.seed = 1", {"[data] names both synthetic and example"}},
      {"layout",
       "micro = 3",
       {"run.toml:6: global_batch (8) is not a multiple of micro (3)", "use global_batch = 6 or 9"}},
      {"layout", "micro = 9", {"global_batch (8) is not a multiple of micro (9)", "use global_batch = 9 or a smaller"}},
      {"optim", "warmup = 101", {"run.toml:6: warmup (101) is longer than the run (100 steps)", "use warmup = 100"}},
      {"optim", "schedule = \"wsd\"", {"schedule \"wsd\" has no decay", "decay = 20"}},
      {"optim", "schedule = \"wsd\"\nwarmup = 51\ndecay = 50", {"run.toml:8: warmup (51) and decay (50) are together"}},
      {"train", "steps = 1000000000000\nglobal_batch = 2147483640", {"run.toml:6: steps times", "2^60"}},
      {"train", "steps = 1000000000000\nglobal_batch = 8000", {"2^60"}},  // 2^60.8, within 63 bits
      {"model",
       "vocabulary = 256",
       {"run.toml:2: the model's vocabulary (256) is smaller than the data's (257",
        "use model.vocabulary = 257 or more"}},
      {"model", "hf = \"x\"", {"has both preset and hf"}},
      {"precision",
       "gradients = \"bf16\"",
       {"run.toml:6: gradients = \"bf16\" needs", "compute is \"fp32\"; set compute = \"bf16\""}},
      {"precision",
       "compute = \"fp64\"\nmoments = \"bf16\"",
       {"run.toml:7: 'moments' does nothing with compute = \"fp64\"", "remove it"}},
      {"precision", "compute = \"fp64\"\ngradients = \"fp32\"", {"run.toml:7: 'gradients' does nothing"}},
      {"precision",
       "moments = \"bf16\"\n[optim]\nname = \"sgd\"\nmomentum = 0",
       {"run.toml:6: sgd with momentum = 0 keeps no moments; leave moments out"}},
  };
  expect_refused(cases);
  EXPECT_NE(
      refusal(kBase + "eval_share = 0\n[train]\neval_every = 5").find("run.toml:7: eval_every is 5 but eval_share"),
      std::string::npos);
  EXPECT_NE(refusal(without(kBase, "example = true")).find("run.toml:3: [data] names no source"), std::string::npos);
  EXPECT_NE(refusal("[model]\npreset = \"llama-1m\"").find("run.toml: [data] names no source"), std::string::npos);
  EXPECT_NE(refusal("").find("a/run.toml: [model] has neither preset, hf, from nor family"), std::string::npos);
  EXPECT_NE(refusal("model = 3").find("run.toml:1: there is no table [model]"), std::string::npos);
  EXPECT_NE(refusal("[[data]]\nexample = true\n[model]\npreset = \"llama-1m\"").find("it must be a table"),
            std::string::npos);
  const std::string synthetic = "[model]\npreset = \"llama-1m\"\nvocabulary = 63\n[data.synthetic]\n";
  EXPECT_NE(refusal(synthetic).find("vocabulary (63) is smaller than the data's (64, synthetic)"), std::string::npos);
  EXPECT_NE(refusal(synthetic + "branching = 5\nvocabulary = 4").find("run.toml:5: branching (5) is more"),
            std::string::npos);
  EXPECT_NE(refusal(synthetic + "vocabulary = 257").find("run.toml:5: a synthetic vocabulary of 257 is too large for"),
            std::string::npos);
  EXPECT_EQ(parse(without(kBase, "example = true") + "tokens = \"t\"", {"model.vocabulary=8"}).model.vocabulary, 8)
      << "a token file's vocabulary is known when it is opened";
}

TEST(RunToml, ASettingStandsOverTheFile) {
  const RunSpec run = parse(
      kBase, {"train.steps=5", "train.steps=7", "optim.betas=[0.5, 0.75]", "run.out=2024", "precision.compute=bf16",
              "train.deterministic=true", "optim.lr=1e-2", "train.bad_values=\"skip\""});
  EXPECT_EQ(run.train.steps, 7) << "the last one counts";
  EXPECT_EQ(run.optimizer.beta2, 0.75);
  EXPECT_EQ(run.run.out, "2024") << "text needs no quotes";
  EXPECT_EQ(run.precision, Precision::bf16);
  EXPECT_EQ(run.optimizer.learning_rate, 0.01);
  EXPECT_EQ(run.train.bad_values, BadValues::skip);
  EXPECT_EQ(parse(with("train", "steps = 3"), {"train.steps=5"}).train.steps, 5);
}

TEST(RunToml, GradientsAndMomentsAreFp32UnlessTheRunSaysOtherwise) {
  EXPECT_EQ(parse(with("precision", "compute = \"bf16\"")).precision, PrecisionSpec(Precision::bf16));
  EXPECT_EQ(parse(with("precision", "gradients = \"fp32\"\nmoments = \"bf16\"")).precision,
            PrecisionSpec(Precision::fp32, StateType::full, StateType::bf16));
  const std::string text = to_toml(parse(with("precision", "compute = \"bf16\"\nmoments = \"bf16\"")));
  EXPECT_NE(text.find("[precision]\ncompute = \"bf16\"\ngradients = \"fp32\"\nmoments = \"bf16\"\n"),
            std::string::npos);
  EXPECT_EQ(parse(text, {"precision.compute=fp64"}).precision, Precision::fp64) << "which has no choice of state";
  EXPECT_EQ(to_toml(parse(kBase, {"precision.compute=fp64"})).find("moments"), std::string::npos);
}

TEST(RunToml, AChoiceBySettingUnmakesTheFilesChoice) {
  const std::string example = example_run_toml();
  EXPECT_EQ(parse(example, {"model.preset=llama-5m"}).model, *preset("llama-5m"))
      << "not with the file's fields over it";
  EXPECT_EQ(parse(example, {"model.preset=llama-5m", "model.layers=2"}).model.layers, 2);
  const std::string scaled = "[model]\npreset = \"llama3.2-1b\"\nrope_scaling.factor = 3\n[data]\nexample = true";
  EXPECT_EQ(parse(scaled, {"model.preset=llama3.1-405b", "model.rope_scaling.low_freq_factor=2"}).model.rope_scaling,
            (RopeScaling{.factor = 8, .low_freq_factor = 2, .high_freq_factor = 4, .original_positions = 8192}))
      << "a setting inside a table of the file outlives the table";
  const DataSpec text = parse(example, {"data.text=[\"/b\", \"/c\"]"}).data;
  EXPECT_EQ(text.text, (std::vector<std::string>{"/b", "/c"}));
  EXPECT_FALSE(text.example);
  EXPECT_EQ(parse(example, {"optim.name=sgd"}).optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(parse(example, {"optim.schedule=constant"}).schedule.kind, RateKind::constant);
  EXPECT_EQ(parse(example, {"data.example=false", "data.synthetic.seed=4"}).data.synthetic->seed, 4u);
  EXPECT_NE(refusal(example, {"data.synthetic.seed=4"}).find("both synthetic and example"), std::string::npos);
  EXPECT_NE(refusal(example, {"data.text=b", "data.tokens=c"}).find("--set data.tokens=c: "), std::string::npos);
  EXPECT_NE(refusal(example, {"optim.name=sgd", "optim.eps=1e-8"}).find("--set optim.eps=1e-8: 'eps' does nothing"),
            std::string::npos);
}

TEST(RunToml, ABadSettingIsNamedItself) {
  const std::pair<const char*, const char*> cases[] = {
      {"train.steps=-1", "--set train.steps=-1: 'steps' in [train]"},
      {"train.steps=many", "--set train.steps=many: 'steps' in [train] has a value that is not allowed ('many')"},
      {"train.step=3", "--set train.step=3: unknown key 'step' in [train]; the nearest known one is 'steps'"},
      {"trian.steps=3", "--set trian.steps=3: unknown table 'trian' in [top level]; the nearest known one is 'train'"},
      {"data.synthetic.sed=3", "--set data.synthetic.sed=3: unknown key 'sed' in [data.synthetic]"},
      {"model.kv_heads=3", "a/run.toml:1 with --set model.kv_heads=3: heads (4) is not"},
      {"model.heads=3", "width (128) is not a multiple of heads (3)"},
      {"layout.micro=3", "--set layout.micro=3: global_batch (8)"},
      {"layout.cp=99", "--set layout.cp=99: seq ("},
      {"layout.tp=3", "--set layout.tp=3: 4 heads with 4 key/value heads cannot be shared out to tp (3) ranks"},
      {"data.seq=100000", "--set data.seq=100000: seq (100000) is beyond"},
      {"train.steps", "--set 'train.steps': has no '='; write --set section.key=value"},
      {"steps=3", "--set 'steps=3': names no section"},
      {"train.=3", "--set 'train.=3': is not the name of a key"},
      {".steps=3", "is not the name of a key"},
      {"=3", "names no section"},
      {"a.b.c.d.e.f=3", "is not the name of a key"},
      {"model.preset.x=3", "'model.preset' is a value and has no keys"},
      {"train.steps=3\n4", "holds a control character"},
      {"run.out=\xff", "UTF-8"},
      {"run.out=", "out is empty"},
      {"run.out=[1]", "--set run.out=[1]: 'out' in [run] has a value that is not allowed (an array)"},
  };
  for (const auto& [setting, word] : cases) {
    const std::string what = refusal(kBase, {setting});
    EXPECT_NE(what.find(word), std::string::npos) << word << " not in: " << what;
  }
  EXPECT_NE(refusal(kBase, {"run.out=" + std::string(5000, 'x')}).find("longer than 4096 bytes"), std::string::npos);
}

TEST(RunToml, WritingAndReadingAreInverse) {
  const auto expect_inverse = [](const RunSpec& spec) {
    const std::string text = to_toml(spec);
    EXPECT_EQ(parse_run_toml(text, "elsewhere/other.toml", "/some/folder", {}), spec) << text;
    EXPECT_EQ(to_toml(parse_run_toml(text, "x", "", {})), text);
  };
  for (const std::string_view name : preset_names()) {
    expect_inverse(parse("[model]\npreset = \"" + std::string(name) + "\"\n[data]\nexample = true"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "configs/runs")) {
    SCOPED_TRACE(entry.path());
    expect_inverse(read_run_file(entry.path()));
  }
  expect_inverse(parse("[model]\nhf = \"" + (kSource / "tests/golden/llama-tied-scaled").string() +
                       "\"\nattention_dropout = 0.3\n[data]\nseq = 8\n[data.synthetic]\nvocabulary = 9"));
  // Values whose short decimal form would lose bits, and names that need escapes.
  RunSpec odd = parse(kBase);
  odd.data.example = false;
  odd.data.text = {"/a \"b\"\\c", "/d\u00e9 = 1 # e"};
  odd.data.eval_share = 0.1 + 0.2;
  odd.train.seed = 9223372036854775807u;
  odd.optimizer = {.kind = OptimizerKind::sgd,
                   .learning_rate = std::nextafter(1e-3, 1),
                   .momentum = 1.0 / 3,
                   .weight_decay = 1e-300,
                   .clip = 5e-324};
  odd.schedule = {.kind = RateKind::wsd, .warmup = 3, .decay = 97, .final = std::nextafter(1.0, 0)};
  odd.precision = Precision::fp64;
  odd.run = {.out = "o'\"\\", .device = RunDevice::cpu, .threads = 4096};
  expect_inverse(odd);
  odd.precision = {Precision::bf16, StateType::bf16, StateType::bf16};
  expect_inverse(odd);
}

TEST(RunToml, TheSampleRunsSayWhatTheirCommentsSay) {
  const RunSpec example = parse_run_toml(example_run_toml(), "example", "", {});
  EXPECT_EQ(example_run_toml(), text_of(kSource / "configs/runs/example.toml")) << "the program holds an old one";
  EXPECT_EQ(example.run.out, "runs/example");
  EXPECT_EQ(parameter_count(example.model), 4'853'504);
  EXPECT_EQ(example.train.global_batch * example.data.seq, 2048);
  const RunSpec gpt2 = read_run_file(kSource / "configs/runs/gpt2-124m.toml");
  EXPECT_EQ(gpt2.train.global_batch * gpt2.data.seq, 524'288);
  EXPECT_EQ(gpt2.data.tokens, (kSource / "configs/runs/train.tokens").string());
  EXPECT_EQ(read_run_file(kSource / "configs/runs/synthetic.toml").run.out, "runs/synthetic");
}

TEST(RunToml, APrefixNeverCrashes) {
  const std::string text = text_of(kSource / "configs/runs/gpt2-124m.toml");
  for (std::size_t length = 0; length < text.size(); length += 3) {
    try {
      parse(text.substr(0, length));
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

TEST(RunToml, DeepNestingAndLargeTextAreRefused) {
  std::string dotted = "a";
  while (dotted.size() < 15990) dotted += ".a";
  EXPECT_NE(refusal(dotted + " = 1").find("'a'"), std::string::npos);
  while (dotted.size() < 64000) dotted += ".a";
  EXPECT_NE(refusal(dotted + " = 1").find("more than 8000 dots"), std::string::npos);
  refusal("a = " + std::string(60000, '['));
  for (const char* header :
       {"[#", "\u00e9 = 1", "a = \u00e9", "[[[a]]]", "[[=", "[ [a] ]", "[", "[]"}) {  // toml++ asserts on some
    EXPECT_NE(refusal(header).find("not valid TOML"), std::string::npos);
  }
  EXPECT_NE(refusal(std::string(1 << 20, '#')).find("larger than 65536 bytes"), std::string::npos);
  EXPECT_EQ(parse(kBase + "#" + std::string(60000, 'x')), parse(kBase));
  EXPECT_THROW(read_run_file("/no/such/run.toml"), UserError);
}

}  // namespace
}  // namespace lockstep
