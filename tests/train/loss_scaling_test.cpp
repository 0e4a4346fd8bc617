// fp16 with loss scaling: gradients that fp16 alone would lose train, the scale leaves no trace in what is learned, an
// overflow skips one step on every rank of every axis, and a resumed run continues with the scale that it had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "data/token_file_writer.h"
#include "spec/layout/layout_toml.h"
#include "support/host_run.h"
#include "support/injected_faults.h"
#include "support/learning_ranks.h"
#include "support/program.h"
#include "support/recipes.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

constexpr LossScale kFixed{.kind = LossScale::Kind::fixed, .exponent = 12};

PrecisionSpec with_scale(Precision compute, const LossScale& scale) {
  PrecisionSpec precision = compute;
  precision.loss_scale = scale;
  return precision;
}

ModelSpec scaled_model() {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.width = spec.vocabulary = 32;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_width = 8;
  spec.ffn_width = 48;
  return spec;
}

// Sets elements of a weight, wherever they are, and the weights that compute. All ranks call it.
void change_weight(Replica& replica, const std::string& name, Stream& stream,
                   const std::function<double(std::int64_t element, double value)>& change) {
  for (const Replica::Named& named : replica.tensors()) {
    if (named.tensor.name != name || named.runs.empty()) continue;
    std::vector<double> here = to_doubles(named.master, stream),
                        whole(static_cast<std::size_t>(named.tensor.elements()));
    named.put(here, whole);
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = change(static_cast<std::int64_t>(i), whole[i]);
    named.take(here, whole);
    const std::vector<float> narrow(here.begin(), here.end());
    upload(named.master, narrow.data(), stream);
  }
  replica.resume(0, 0);
}

// In fp32 nothing is lost, so that a power of two as the scale must leave every bit: of losses, norms, what clipping
// makes of them, and weights.
TEST(LossScaling, LeavesEveryBitOfAnFp32RunInEveryLayout) {
  const ModelSpec spec = scaled_model();
  for (const char* text : {"dp=1", "dp=3,zero=1", "dp=2,zero=3,micro=2", "tp=2", "pp=2,micro=2", "cp=3,cp_order=plain",
                           "dp=2,dp_kind=central"}) {
    const LayoutSpec layout = parse_layout(text);
    const Learned plain = learn(spec, layout, Precision::fp32);
    const Learned scaled = learn(spec, layout, with_scale(Precision::fp32, kFixed));
    EXPECT_EQ(scaled.losses, plain.losses) << text;
    EXPECT_EQ(scaled.norms, plain.norms) << text;
    EXPECT_EQ(scaled.copies, plain.copies) << text;
    std::vector<double> unscaled = scaled.gradients[1][0];
    for (double& g : unscaled) g = std::ldexp(g, -kFixed.exponent);
    EXPECT_EQ(unscaled, plain.gradients[1][0]) << text;
    EXPECT_NE(scaled.gradients[1][0], plain.gradients[1][0]) << text << ": it was not scaled";
  }
}

struct BlockGradient {
  std::vector<double> gradient, moved;
  double loss = 0;
};

// Of the blocks, under a head whose weights are small: what reaches them is about 1e-9 of an element.
BlockGradient under_a_small_head(const PrecisionSpec& precision) {
  Replica::Options o{.spec = scaled_model(), .B = 32, .T = 64, .precision = precision, .seed = 3};
  o.spec.max_positions = o.T;
  o.optimizer.weight_decay = 0;
  HostRun run(o);
  run.replica->init_weights();
  change_weight(*run.replica, "lm_head.weight", *run.stream, [](std::int64_t, double v) { return 2e-5 * v; });
  const auto blocks = [&](Tensor Replica::Named::*which) {
    std::vector<double> all;
    for (const Replica::Named& t : run.replica->tensors())
      if (t.tensor.name.starts_with("model.layers."))
        for (const double value : to_doubles(t.*which, *run.stream)) all.push_back(value);
    return all;
  };
  BlockGradient result{.gradient = {}, .moved = blocks(&Replica::Named::master)};
  const double scale = std::ldexp(1.0, run.replica->loss_scale().exponent);
  const TokenBatch batch = random_batch(o, 1);
  const Replica::Result step = run.replica->step(batch.tokens, batch.targets);
  EXPECT_TRUE(step.updated);
  EXPECT_EQ(step.loss_scale, scale);
  result.loss = step.loss;
  result.gradient = blocks(&Replica::Named::gradient);
  for (double& g : result.gradient) g /= scale;
  const std::vector<double> after = blocks(&Replica::Named::master);
  for (std::size_t i = 0; i < after.size(); ++i) result.moved[i] -= after[i];
  return result;
}

TEST(LossScaling, TrainsWhatFp16AloneWouldLose) {
  const BlockGradient exact = under_a_small_head(Precision::fp32);
  const BlockGradient none = under_a_small_head(with_scale(Precision::fp16, {}));
  const BlockGradient scaled = under_a_small_head(Precision::fp16);
  const auto size = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return std::sqrt(sum);
  };
  const auto apart = [&](const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> difference = a;
    for (std::size_t i = 0; i < b.size(); ++i) difference[i] -= b[i];
    return size(difference) / size(b);
  };
  ASSERT_GT(size(exact.gradient), 0);
  EXPECT_EQ(size(none.gradient), 0) << "every gradient of the blocks is below the smallest number of fp16";
  EXPECT_EQ(size(none.moved), 0) << "so that no weight of them moves";
  EXPECT_LT(apart(scaled.gradient, exact.gradient), 0.02);
  EXPECT_GT(size(scaled.moved), 0.9 * size(exact.moved));
  EXPECT_NEAR(scaled.loss, exact.loss, 1e-3 * exact.loss) << "the loss that is told is not scaled";
}

// What ranks see of a run in which the sample that has token 0 overflows: its embedding is more than fp16 can hold.
constexpr std::int64_t kOverflowSteps = 6, kOverflowBatch = 6, kOverflowStep = 3, kOverflowSeq = 8;

struct SeenByRank final : Watcher {
  TrainingRun* run = nullptr;
  std::vector<StepRecord> records;
  std::vector<std::string> notes;
  std::vector<std::vector<double>> weights;  // after each step
  void stepped(const StepRecord& r) override {
    records.push_back(r);
    weights.emplace_back();
    for (const Replica::Named& t : run->replica().tensors())
      for (const double value : to_doubles(t.master, run->stream())) weights.back().push_back(value);
  }
  void note(const std::string& line) override { notes.push_back(line); }
};

struct OverflowRun {
  std::vector<SeenByRank> ranks;
  std::vector<Progress> progress;
  std::vector<Ending> endings;
};

OverflowRun overflowing_run(const LayoutSpec& layout, const LossScale& scale) {
  const TemporaryFolder folder;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < kOverflowSteps * kOverflowBatch * kOverflowSeq * 3 + 1; ++i)
    tokens.push_back(1 + static_cast<std::int32_t>(uniform_number(2, i) * 30));
  RunSpec spec;
  spec.model = scaled_model();
  spec.data.seq = kOverflowSeq;
  spec.data.eval_share = 0;
  spec.data.tokens = folder / "some.tokens";
  spec.train = {.steps = kOverflowSteps, .global_batch = kOverflowBatch, .seed = 8, .save_last = false};
  spec.precision = with_scale(Precision::fp16, scale);
  spec.layout = layout;
  spec.run.threads = 1;
  {
    // The sampler has an order of its own: the token goes to the last sample of the batch of that step.
    const auto write = [&] {
      TokenFileWriter writer(spec.data.tokens, 32);
      writer.add(tokens);
      writer.finish();
    };
    write();
    const Sampler sampler(RunData(spec).training_samples(), random_key(spec.train.seed, "data order"));
    tokens[static_cast<std::size_t>(sampler.sample_of(kOverflowStep * kOverflowBatch - 1) * kOverflowSeq + 3)] = 0;
    std::filesystem::remove(spec.data.tokens);
    write();
  }
  const auto ranks = static_cast<std::size_t>(layout.ranks());
  OverflowRun result{.ranks = std::vector<SeenByRank>(ranks), .progress = std::vector<Progress>(ranks), .endings = {}};
  result.endings.resize(ranks);
  run_ranks(static_cast<int>(ranks), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    TrainingRun run(spec, Device::cpu, folder.path() / "checkpoints", {.ranks = ranks > 1 ? group.get() : nullptr});
    run.init_weights();
    change_weight(run.replica(), "model.embed_tokens.weight", run.stream(),
                  [&](std::int64_t i, double v) { return i < spec.model.width ? 1e5 : v; });
    result.progress[rank] = beginning(run);
    result.ranks[rank].run = &run;
    result.endings[rank] = train(run, result.progress[rank], result.ranks[rank]);
  });
  return result;
}

TEST(LossScaling, AnOverflowSkipsOneStepOnAllRanksOfAllAxesAndHalvesTheScale) {
  for (const char* text : {"dp=1", "dp=2", "dp=3", "tp=2", "pp=2,micro=3", "cp=2", "dp=2,zero=3", "dp=2,zero=1,micro=3",
                           "dp=2,dp_kind=central", "dp=2,pp=2,tp=2,micro=3,zero=1"}) {
    const OverflowRun run = overflowing_run(parse_layout(text), {.kind = LossScale::Kind::dynamic, .growth = 2});
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {} of {}", rank, text));
      EXPECT_EQ(run.endings[rank], Ending::finished) << "and bad_values = stop";
      EXPECT_EQ(run.progress[rank].updates, kOverflowSteps - 1);
      EXPECT_EQ(run.progress[rank].loss_scale, (LossScaleState{.exponent = 17, .steps = 1}));
      const SeenByRank& seen = run.ranks[rank];
      std::vector<double> scales;
      std::vector<std::int64_t> overflows, skipped;
      for (const StepRecord& r : seen.records) {
        scales.push_back(r.loss_scale.value_or(0));
        if (r.overflow) overflows.push_back(r.step);
        if (!r.updated) skipped.push_back(r.step);
      }
      EXPECT_EQ(scales, (std::vector<double>{65536, 65536, 131072, 65536, 65536, 131072}));
      EXPECT_EQ(overflows, (std::vector<std::int64_t>{kOverflowStep}));
      EXPECT_EQ(skipped, overflows);
      EXPECT_THAT(seen.notes, ::testing::ElementsAre(::testing::HasSubstr(
                                  "step 3: gradients overflowed with loss scale 131072, nothing was updated; 65536")));
      EXPECT_EQ(seen.weights[kOverflowStep - 1], seen.weights[kOverflowStep - 2]) << "nothing was updated";
      EXPECT_NE(seen.weights[kOverflowStep - 2], seen.weights[kOverflowStep - 3]);
      EXPECT_NE(seen.weights[kOverflowStep], seen.weights[kOverflowStep - 1]);
    }
  }
}

TEST(LossScaling, AFixedScaleAndTheSmallestOneLeaveAnOverflowToBadValues) {
  for (const LossScale& scale : {LossScale{}, kFixed}) {
    const OverflowRun run = overflowing_run({.dp = 2}, scale);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(run.endings[rank], Ending::bad_values);
      EXPECT_EQ(run.progress[rank].step, kOverflowStep);
      EXPECT_EQ(run.progress[rank].updates, kOverflowStep - 1);
      EXPECT_EQ(run.progress[rank].loss_scale, std::nullopt);
      EXPECT_FALSE(run.ranks[rank].records.back().overflow);
    }
  }
}

TEST(LossScaling, OverflowsThatNoScaleHelpsEndAsBadValuesAtTheSmallest) {
  RunSpec spec;
  spec.model = scaled_model();
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 30, .global_batch = 4, .save_last = false};
  spec.precision = Precision::fp16;
  spec.run.threads = 1;
  const TemporaryFolder folder;
  for (const int at_once : {1, 2}) {
    TrainingRun run(spec, Device::cpu, folder.path(), {.steps_at_once = at_once});
    run.init_weights();
    change_weight(run.replica(), "model.embed_tokens.weight", run.stream(), [](std::int64_t, double) { return 1e5; });
    Progress progress = beginning(run);
    struct Heard final : Watcher {
      std::int64_t overflows = 0;
      std::string reason;
      void stepped(const StepRecord& r) override { overflows += r.overflow ? 1 : 0; }
      void ended_by(const std::string& why) override { reason = why; }
    } heard;
    EXPECT_EQ(train(run, progress, heard), Ending::bad_values);
    EXPECT_EQ(heard.overflows, LossScale::kFirst);
    EXPECT_EQ(progress.step, LossScale::kFirst + 1);
    EXPECT_EQ(progress.updates, 0);
    EXPECT_EQ(progress.loss_scale, LossScaleState{});
    EXPECT_THAT(heard.reason, ::testing::AllOf(::testing::HasSubstr("step 17: a value is not finite"),
                                               ::testing::HasSubstr("of embedding after forward(0, 0)")));
  }
}

// ---- Layouts and checkpoints

TEST(LossScaling, LayoutsInFp16LearnOneRanksBitsWhereSumsKeepTheirOrder) {
  const NamedSpec model = tiny_specs()[1];
  const Learned one = learn(model.spec, {.micro = 4}, Precision::fp16);
  expect_equal(learn(model.spec, {.pp = 2, .micro = 4}, Precision::fp16), one, "pp=2");
  for (const std::int64_t tp : {1, 3}) {
    const LayoutSpec plain{.dp = 3, .tp = tp, .micro = 2, .grad_sync = GradSync::step};
    const Learned whole = learn(model.spec, plain, Precision::fp16);
    for (const int stage : {1, 2, 3}) {
      LayoutSpec layout = plain;
      layout.zero = stage;
      expect_equal(learn(model.spec, layout, Precision::fp16), whole, to_text(layout));
    }
    LayoutSpec layout = plain;
    layout.overlap = Switch::off;
    expect_equal(learn(model.spec, layout, Precision::fp16), whole, to_text(layout));
  }
}

// The others are as far from fp64 as one rank in fp16 is, and update as it does.
TEST(LossScaling, LayoutsInFp16AreAsCloseAsRoundingAllows) {
  for (const std::size_t model : {0U, 6U}) {  // Llama, GPT-2
    ModelSpec spec = tiny_specs()[model].spec;
    spec.width = spec.vocabulary = 64;
    spec.heads = 4;
    spec.kv_heads = spec.family == Family::gpt2 ? 4 : 2;
    spec.head_width = 16;
    spec.ffn_width = 90;
    spec.init_std = 0.02;
    RunSpec run = trial_run(spec, 16, 3, Precision::fp16);
    run.precision = Precision::fp16;
    std::vector<LayoutSpec> layouts;
    for (const char* text :
         {"dp=1", "tp=2", "tp=4,sp=off", "cp=2", "cp=2,cp_kind=ulysses", "pp=2,micro=4", "dp=4,zero=2",
          "dp=2,dp_kind=central", "dp=2,tp=2,zero=3", "dp=2,pp=2,tp=2,zero=1,micro=2"})
      layouts.push_back(parse_layout(text));
    for (const LayoutVerdict& v : compare_layouts(run, layouts, {}).verdicts)
      EXPECT_FALSE(v.first || v.undecided)
          << tiny_specs()[model].name << ", " << to_text(v.layout) << ": " << (v.first ? v.first : v.undecided)->what
          << ", " << v.rounding->share << " of what is allowed";
  }
}

TEST(LossScaling, AResumedRunContinuesWithTheScaleInAnyLayoutToTheBit) {
  const std::vector<std::vector<LayoutSpec>> same_sums = {
      {{.micro = 4}, {.pp = 2, .micro = 4}},
      {{.dp = 2, .grad_sync = GradSync::step}, {.dp = 2, .zero = 3, .grad_sync = GradSync::step}}};
  const auto run_of = [&](const LayoutSpec& layout) {
    RunSpec run = resumed_run(tiny_specs()[1].spec, layout);
    run.train.steps = 7;
    run.precision = with_scale(Precision::fp16, {.kind = LossScale::Kind::dynamic, .growth = 3});
    return run;
  };
  for (const std::vector<LayoutSpec>& layouts : same_sums) {
    const TemporaryFolder folder;
    const TrainedState stayed = train_all(run_of(layouts[0]), folder.path());
    const std::filesystem::path at_4 = folder.path() / step_folder_name(4);
    EXPECT_EQ(open_checkpoint(folder.path() / step_folder_name(2)).progress().loss_scale,
              (LossScaleState{.exponent = 16, .steps = 2}));
    EXPECT_EQ(open_checkpoint(at_4).progress().loss_scale, (LossScaleState{.exponent = 17, .steps = 1}));
    const auto last = open_checkpoint(folder.path() / step_folder_name(7)).progress().loss_scale;
    EXPECT_EQ(last, (LossScaleState{.exponent = 18, .steps = 1}));
    for (const LayoutSpec& to : layouts) {
      const TemporaryFolder unused;
      EXPECT_TRUE(train_all(run_of(to), unused.path(), at_4) == stayed) << to_text(to);
      run_ranks(static_cast<int>(to.ranks()), [&](std::unique_ptr<Communicator> group) {
        TrainingRun run(run_of(to), Device::cpu, unused.path(), {.ranks = group->size() > 1 ? group.get() : nullptr});
        Progress progress = resume(run, open_checkpoint(at_4), [](const std::string&) {});
        EXPECT_EQ(progress.loss_scale, open_checkpoint(at_4).progress().loss_scale);
        Watcher nobody;
        train(run, progress, nobody);
        EXPECT_EQ(progress.loss_scale, last) << to_text(to);
      });
    }
  }
}

// The scale may be chosen anew: a fixed one takes the place of the saved, and is noted.
TEST(LossScaling, MayChangeWhenARunIsResumed) {
  RunSpec spec = resumed_run(tiny_specs()[0].spec, {});
  spec.precision = Precision::fp16;
  const TemporaryFolder folder, unused;
  train_all(spec, folder.path());
  spec.precision = with_scale(Precision::fp16, kFixed);
  TrainingRun run(spec, Device::cpu, unused.path());
  std::vector<std::string> notes;
  resume(run, open_checkpoint(folder.path() / step_folder_name(kSavedStep)),
         [&](const std::string& line) { notes.push_back(line); });
  EXPECT_EQ(run.replica().loss_scale().exponent, kFixed.exponent);
  EXPECT_THAT(notes, ::testing::Contains("precision.loss_scale changes from \"dynamic\" to 4096"));
}

// ---- Learning

double loss_of_300_steps(Precision precision, std::int64_t& overflows) {
  RunSpec run;
  run.model = scaled_model();
  run.model.vocabulary = 16;
  run.model.init_std = 0.02;
  run.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 4};
  run.data.seq = 16;
  run.data.eval_share = 0.1;
  run.train = {.steps = 300, .global_batch = 16, .eval_every = 300, .eval_batches = 32, .seed = 2};
  run.train.save_last = false;
  run.optimizer.learning_rate = 3e-3;
  run.schedule.warmup = 20;
  run.precision = precision;
  run.precision.loss_scale.growth = 20;
  run.run.threads = 1;
  struct Last final : Watcher {
    double loss = 0;
    std::int64_t overflows = 0;
    void stepped(const StepRecord& r) override { overflows += r.overflow ? 1 : 0; }
    void evaluated(const EvalRecord& r) override { loss = r.loss; }
  } last;
  const TemporaryFolder folder;
  TrainingRun training(run, Device::cpu, folder.path());
  training.init_weights();
  Progress progress = beginning(training);
  EXPECT_EQ(train(training, progress, last), Ending::finished);
  overflows = last.overflows;
  return last.loss;
}

// The scale grows until steps overflow, several times.
TEST(LossScaling, EndsWithinOnePercentOfFp32After300Steps) {
  std::int64_t none = 0, overflows = 0;
  const double full = loss_of_300_steps(Precision::fp32, none);
  EXPECT_LT(full, 1.7) << "it learns, or there is nothing to compare";
  EXPECT_NEAR(loss_of_300_steps(Precision::fp16, overflows), full, 0.01 * full);
  EXPECT_EQ(none, 0);
  EXPECT_GT(overflows, 1);
  EXPECT_LT(overflows, 10);
}

}  // namespace
}  // namespace lockstep::tests
