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
  EXPECT_EQ(parse(example, {"data.synthetic.seed=4"}).data.synthetic->seed, 4u);
  EXPECT_FALSE(parse(example, {"data.synthetic.seed=4"}).data.example);
  EXPECT_NE(refusal(example, {"data.synthetic.seed=4", "data.example=true"}).find("both synthetic and example"),
            std::string::npos);
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

TEST(RunToml, LocalStepsAreReadAndWrittenAndWhatDoesNotAgreeWithThemIsRefused) {
  const std::vector<std::string> partial{"layout.dp=4",         "sync.kind=partial", "sync.every=5",
                                         "sync.outer=nesterov", "train.steps=20",    "train.save_every=10"};
  const RunSpec run = parse(kBase, partial);
  EXPECT_EQ(run.sync.every, 5);
  EXPECT_EQ(run.sync.groups(run.layout.dp), 4);
  EXPECT_TRUE(run.sync.changes_numbers());
  EXPECT_EQ(parse(to_toml(run)), run);
  const std::pair<const char*, const char*> cases[] = {
      {"sync.every=0", "'every'"},
      {"train.steps=21", "of which steps = 21 is no multiple; use train.steps=25 or train.steps=20"},
      {"train.save_every=4", "of which save_every = 4 is no multiple; use train.save_every=5"},
      {"layout.dp_kind=central", "every replica updates, and dp_kind is \"central\"; use layout.dp_kind=ddp"},
      {"layout.dp_kind=server", "every replica updates, and dp_kind is \"server\"; use layout.dp_kind=ddp"},
      {"layout.zero=1", "which they cannot shard; use layout.zero=0"},
      {"layout.grad_sync=micro", "use layout.grad_sync=step"},
      {"layout.reduce=ring", "use layout.reduce=canonical"},
      {"train.bad_values=skip", "use train.bad_values=stop"},
      {"train.loss_spikes=rewind", "use train.loss_spikes=ignore"},
      {"run.check_state=5", "use run.check_state=0"},
      {"precision.compute=fp16", "replicas would find different loss scales; use precision.compute=bf16"},
      {"memory.offload_optimizer=disk", "what is averaged stays on the device; remove it"},
      {"sync.staleness=1", "'staleness' does nothing without kind = \"async\""},
      {"sync.group=2", "'group' does nothing without kind = \"mixed\""},
  };
  for (const auto& [set, words] : cases) {
    std::vector<std::string> sets = partial;
    sets.emplace_back(set);
    EXPECT_NE(refusal(kBase, sets).find(words), std::string::npos) << set << ": " << refusal(kBase, sets);
  }
  const std::vector<std::string> mixed{"layout.dp=4", "sync.kind=mixed", "sync.every=5", "train.steps=20",
                                       "train.save_every=10"};
  std::vector<std::string> uneven = mixed;
  uneven.emplace_back("sync.group=3");
  EXPECT_NE(refusal(kBase, uneven).find("dp (4) is not a multiple of group (3); use a group that divides dp"),
            std::string::npos);
  std::vector<std::string> sharded = mixed;
  sharded.insert(sharded.end(), {"sync.group=2", "layout.zero=2", "layout.shard=4"});
  EXPECT_NE(refusal(kBase, sharded)
                .find("groups of 2 ranks have weights of their own, and 4 ranks shard them; use "
                      "layout.shard=2"),
            std::string::npos);
  sharded.back() = "layout.shard=2";
  EXPECT_EQ(parse(kBase, sharded).layout.shards(), 2);
}

TEST(RunToml, AsynchronousServersAreReadAndWrittenAndWhatDoesNotAgreeWithThemIsRefused) {
  EXPECT_NE(refusal(kBase, {"sync.kind=async"}).find("use layout.dp_kind=server"), std::string::npos);
  const std::vector<std::string> served{"layout.dp=4", "layout.dp_kind=server", "sync.kind=async"};
  EXPECT_EQ(parse(kBase, served).sync.staleness, kNoStalenessBound);
  EXPECT_TRUE(parse(kBase, served).sync.is_asynchronous());
  auto bounded = served;
  bounded.insert(bounded.end(), {"sync.staleness=3", "sync.replay=here/arrivals.jsonl"});
  EXPECT_EQ(parse(kBase, bounded).sync.staleness, 3);
  EXPECT_EQ(parse(to_toml(parse(kBase, served))), parse(kBase, served));
  EXPECT_EQ(parse(to_toml(parse(kBase, bounded))), parse(kBase, bounded));
  EXPECT_TRUE(parse(kBase, bounded).sync.replay.ends_with("/here/arrivals.jsonl"));
  bounded[3] = "sync.staleness=0";
  EXPECT_NE(refusal(kBase, bounded).find("'replay' does nothing with staleness = 0"), std::string::npos);
  bounded.pop_back();
  EXPECT_FALSE(parse(kBase, bounded).sync.changes_numbers()) << "the synchronous server";
  for (const auto& [set, remedy] : {std::pair{"layout.uneven=on", "use train.global_batch=8"},
                                    {"train.loss_spikes=rewind", "loss_spikes=ignore"},
                                    {"run.check_state=2", "use run.check_state=0"},
                                    {"layout.overlap=off", "use layout.overlap=on"},
                                    {"layout.cp=2", "use layout.cp=1"},
                                    {"train.bad_values=skip", "use train.bad_values=stop"}}) {
    auto sets = served;
    sets.emplace_back(set);
    if (sets.back() == "layout.uneven=on") sets.emplace_back("train.global_batch=6");
    EXPECT_NE(refusal(kBase, sets).find(remedy), std::string::npos) << set << ": " << refusal(kBase, sets);
  }
}

TEST(RunToml, AMaskGrowsByTheScheduleThatTheRunNames) {
  EXPECT_EQ(parse(kBase).sparsity, SparsitySpec{});
  EXPECT_FALSE(parse(kBase).sparsity);
  const RunSpec run = parse(kBase, {"train.steps=100", "sparsity.kind=unstructured", "sparsity.share=0.8",
                                    "sparsity.begin=10", "sparsity.end=50", "sparsity.every=10"});
  EXPECT_EQ(parse(to_toml(run)), run);
  const SparsitySpec& s = run.sparsity;
  std::vector<std::int64_t> mask_steps;
  for (std::int64_t step = 0; step <= 100; ++step)
    if (s.masks_after(step)) mask_steps.push_back(step);
  EXPECT_EQ(mask_steps, (std::vector<std::int64_t>{20, 30, 40, 50}));
  // 0.8 (1 - (3/4)³), and so on; between mask steps the share stays.
  const std::pair<std::int64_t, double> shares[] = {{10, 0},   {19, 0},      {20, 0.4625}, {29, 0.4625},
                                                    {30, 0.7}, {40, 0.7875}, {50, 0.8},    {99, 0.8}};
  for (const auto& [step, share] : shares) EXPECT_NEAR(s.share_after(step), share, 1e-15) << step;
  EXPECT_EQ(s.kept(1001, 50), 200);
  const RunSpec half = parse(kBase, {"train.steps=100", "sparsity.kind=2:4", "sparsity.end=40", "sparsity.every=10",
                                     "sparsity.schedule=linear"});
  EXPECT_EQ(parse(to_toml(half)), half);
  EXPECT_EQ(half.sparsity.share_after(10), 0.125);
  EXPECT_EQ(half.sparsity.kept(1000, 40), 500);
}

TEST(RunToml, ParameterServersRefuseWhatTheyDoNotDo) {
  const std::vector<std::string> served{"layout.dp=4", "layout.dp_kind=server", "layout.servers=2"};
  EXPECT_EQ(parse(kBase, served).layout.ranks(), 6);
  EXPECT_EQ(parse(to_toml(parse(kBase, served))), parse(kBase, served));
  EXPECT_EQ(parse(to_toml(parse(kBase, served)), {"layout.dp_kind=ddp"}).layout.servers, 0);
  const std::pair<const char*, const char*> cases[] = {
      {"layout.reduce=tree", "use reduce = \"canonical\", or dp_kind = \"ddp\""},
      {"layout.tp=4", "servers (2) is not a multiple of pp (1) times cp (1) times tp (4); use servers = 4"},
      {"memory.offload_optimizer=disk", "do not offload them; use more layout.servers, or remove it"},
      {"memory.offload_gradients=disk", "do not offload them; use more layout.servers, or remove it"},
  };
  for (const auto& [set, words] : cases) {
    std::vector<std::string> sets = served;
    sets.emplace_back(set);
    EXPECT_NE(refusal(kBase, sets).find(words), std::string::npos) << set << ": " << refusal(kBase, sets);
  }
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
