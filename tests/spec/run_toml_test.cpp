// A run's TOML: what it means, where its model comes from, and that the resolved file says the same run to the last
// bit.
#include "run_toml_cases.h"

#include <cmath>

#include "spec/model/hf_config.h"
#include "spec/model/presets.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

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
documents = "packed"
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
loss_spikes = "rewind"
spike_z = 5.5
most_rewinds = 3
async_save = false
snapshot = "host"
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
master = "bf16"
[run]
out = "somewhere"
device = "cpu"
threads = 2
stop_signals = ["USR2", "SIGHUP"]
)");
  EXPECT_EQ(run.model.vocabulary, 300);
  const DataSpec data{.text = {},
                      .tokens = "/t.bin",
                      .tokenizer = {},
                      .synthetic = {},
                      .seq = 64,
                      .documents = Documents::packed,
                      .eval_share = 0.25};
  EXPECT_EQ(run.data, data);
  const TrainSpec train{.steps = 7,
                        .global_batch = 6,
                        .eval_every = 2,
                        .eval_batches = 3,
                        .save_every = 4,
                        .keep = 5,
                        .seed = 9223372036854775807u,
                        .bad_values = BadValues::skip,
                        .loss_spikes = LossSpikes::rewind,
                        .spike_z = 5.5,
                        .most_rewinds = 3,
                        .async_save = false,
                        .snapshot = SnapshotPlace::host,
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
  EXPECT_EQ(run.precision, PrecisionSpec(Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16));
  const RunSettings settings{
      .out = "somewhere", .device = RunDevice::cpu, .threads = 2, .stop_signals = {"SIGUSR2", "SIGHUP"}};
  EXPECT_EQ(run.run, settings);
  EXPECT_EQ(parse(with("run", "check_state = 4")).run.check_state, 4);
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

TEST(RunToml, GradientsMomentsAndMastersAreFp32UnlessTheRunSaysOtherwise) {
  EXPECT_EQ(parse(with("precision", "compute = \"bf16\"")).precision, PrecisionSpec(Precision::bf16));
  EXPECT_EQ(parse(with("precision", "gradients = \"fp32\"\nmoments = \"bf16\"")).precision,
            PrecisionSpec(Precision::fp32, StateType::full, StateType::bf16));
  const std::string text = to_toml(parse(with("precision", "compute = \"bf16\"\nmoments = \"bf16\"")));
  EXPECT_NE(text.find("[precision]\ncompute = \"bf16\"\ngradients = \"fp32\"\nmoments = \"bf16\"\nmaster = \"fp32\"\n"),
            std::string::npos);
  EXPECT_EQ(parse(with("precision", "compute = \"bf16\"\nmaster = \"bf16\"")).precision,
            PrecisionSpec(Precision::bf16, StateType::full, StateType::full, StateType::bf16));
  EXPECT_EQ(parse(text, {"precision.compute=fp64"}).precision, Precision::fp64) << "which has no choice of state";
  for (const char* key : {"moments", "master"})
    EXPECT_EQ(to_toml(parse(kBase, {"precision.compute=fp64"})).find(key), std::string::npos);
}

TEST(RunToml, Fp16ScalesTheLossUnlessTheRunSaysOtherwise) {
  const auto scale = [](const std::string& text, const std::vector<std::string>& sets = {}) {
    return parse(with("precision", text), sets).precision.loss_scale;
  };
  using enum LossScale::Kind;
  const std::string half = "compute = \"fp16\"\n";
  EXPECT_EQ(parse(with("precision", half)).precision, PrecisionSpec(Precision::fp16));
  EXPECT_EQ(scale(half), (LossScale{.kind = dynamic, .growth = 2000}));
  EXPECT_EQ(scale(half + "loss_scale = \"dynamic\"\nloss_scale_growth = 7"), (LossScale{.kind = dynamic, .growth = 7}));
  EXPECT_EQ(scale(half + "loss_scale = \"none\""), LossScale{});
  for (const char* number : {"1024", "1024.0", "\"1024\""})
    EXPECT_EQ(scale(half + "loss_scale = " + number), (LossScale{.kind = fixed, .exponent = 10})) << number;
  EXPECT_EQ(scale(half + "loss_scale = 1"), (LossScale{.kind = fixed, .exponent = 0}));
  EXPECT_EQ(scale(half, {"precision.loss_scale=4294967296"}), (LossScale{.kind = fixed, .exponent = 32}));
  EXPECT_EQ(scale("compute = \"bf16\"\nloss_scale = \"none\""), LossScale{});
  // What is said on the command line takes the place of the file's.
  EXPECT_EQ(scale(half + "loss_scale_growth = 7", {"precision.compute=bf16"}), LossScale{});
  EXPECT_EQ(scale(half + "loss_scale_growth = 7", {"precision.loss_scale=2"}),
            (LossScale{.kind = fixed, .exponent = 1}));
  EXPECT_EQ(to_toml(parse(kBase)).find("loss_scale"), std::string::npos);
}

TEST(RunToml, ATokenizerIsAFolderOrBytes) {
  const std::string text = "[model]\npreset = \"llama-1m\"\n[data]\ntext = \"t\"\ntokenizer = ";
  EXPECT_EQ(parse(text + "\"../hf\"\n").data.tokenizer, "/hf");
  EXPECT_EQ(parse(text + "\"bytes\"\n").data.tokenizer, "");
  EXPECT_EQ(parse(text + "\"../hf\"\n", {"data.example=true"}).data.tokenizer, "");  // another source, without it
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
  odd.data.tokenizer = "/t \"u\"";
  odd.data.documents = Documents::nosplit;
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
  odd.precision.master = StateType::bf16;
  expect_inverse(odd);
  odd.precision = Precision::fp8;
  expect_inverse(odd);
  for (const LossScale& scale :
       {LossScale{}, LossScale{.kind = LossScale::Kind::fixed, .exponent = 32},
        LossScale{.kind = LossScale::Kind::fixed}, LossScale{.kind = LossScale::Kind::dynamic, .growth = 3}}) {
    odd.precision = Precision::fp16;
    odd.precision.loss_scale = scale;
    expect_inverse(odd);
  }
}

TEST(RunToml, TheSampleRunsSayWhatTheirCommentsSay) {
  const RunSpec example = parse_run_toml(example_run_toml(), "example", "", {});
  EXPECT_EQ(example_run_toml(), tests::text_of(kSource / "configs/runs/example.toml"))
      << "the program holds an old one";
  EXPECT_EQ(example.run.out, "runs/example");
  EXPECT_EQ(parameter_count(example.model), 918'912);
  EXPECT_EQ(example.train.global_batch * example.data.seq, 2048);
  const RunSpec gpt2 = read_run_file(kSource / "configs/runs/gpt2-124m.toml");
  EXPECT_EQ(gpt2.train.global_batch * gpt2.data.seq, 524'288);
  EXPECT_EQ(gpt2.data.tokens, (kSource / "configs/runs/train.tokens").string());
  EXPECT_EQ(read_run_file(kSource / "configs/runs/synthetic.toml").run.out, "runs/synthetic");
}

}  // namespace
}  // namespace lockstep
