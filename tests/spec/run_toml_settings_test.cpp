// Settings from the command line: they stand over the file, unmake its choices, and are named where they are wrong.
#include "run_toml_cases.h"
#include "spec/model/presets.h"

namespace lockstep {
namespace {

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

TEST(RunToml, TheClockIsOneOfThreeAndHasAnErrorUnlessItIsOff) {
  EXPECT_EQ(parse(kBase).run.clock, ClockScope::local);
  EXPECT_EQ(parse(kBase).run.clock_error, 100e-6);
  const RunSpec global = parse(kBase, {"run.clock=global", "run.clock_error=2e-6"});
  EXPECT_EQ(global.run.clock, ClockScope::global);
  EXPECT_EQ(parse(to_toml(global)), global);
  const RunSpec off = parse(to_toml(global), {"run.clock=off"});
  EXPECT_EQ(off.run.clock, ClockScope::off) << "without the error that the file has";
  EXPECT_EQ(to_toml(off).find("clock_error"), std::string::npos);
  EXPECT_EQ(parse(to_toml(global), {"run.clock=local"}).run.clock_error, 2e-6);
}

TEST(RunToml, ACompressionIsAWordOrAShare) {
  for (const char* text : {"none", "bf16", "int8", "onebit", "topk:0.01", "topk:0.5"}) {
    const auto read = Compression::parse(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->text(), text);
  }
  for (const char* text :
       {"", "topk", "topk:", "topk:0", "topk:1", "topk:2", "topk:-0.1", "topk:nan", "topk:0.1x", "int4"})
    EXPECT_FALSE(Compression::parse(text)) << text;
}

TEST(RunToml, ARunIsSynchronousUnlessItSaysOtherwise) {
  const RunSpec run = parse(kBase);
  EXPECT_EQ(run.sync, SyncSpec{});
  EXPECT_FALSE(run.sync.changes_numbers());
  EXPECT_EQ(parse(to_toml(run)), run);
  EXPECT_NE(refusal(kBase, {"sync.every=4"}).find("'every' does nothing without kind"), std::string::npos);
  EXPECT_NE(refusal(kBase, {"sync.feedback=false"}).find("'feedback' does nothing without compress"),
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

}  // namespace
}  // namespace lockstep
