// A run that was interrupted learns what an uninterrupted one learns, to the bit.
#include "train/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"

namespace lockstep::tests {
namespace {

// Dropout, accumulation over three micro-batches, clipping, a schedule that moves every step.
RunSpec run_of_twelve_steps() {
  RunSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.dropout > 0) spec.model = named.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 12, .global_batch = 6, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.schedule.warmup = 3;
  spec.layout.micro = 3;
  spec.run.threads = 1;
  return spec;
}

struct Losses final : Watcher {
  std::vector<double> all;
  std::int64_t stop_after = -1;
  void stepped(const StepRecord& r) override { all.push_back(r.loss); }
  bool wants_stop() override { return std::ssize(all) == stop_after; }
};

TEST(Resume, LearnsTheSameBitsAsAnUninterruptedRun) {
  ASSERT_GT(run_of_twelve_steps().model.dropout, 0);
  for (const PrecisionSpec precision :
       {PrecisionSpec(Precision::fp32), PrecisionSpec(Precision::bf16), PrecisionSpec(Precision::fp64),
        PrecisionSpec(Precision::bf16, StateType::bf16, StateType::bf16),
        PrecisionSpec(Precision::bf16, StateType::full, StateType::full, StateType::bf16)}) {
    for (const bool async : {true, false}) {
      RunSpec spec = run_of_twelve_steps();
      spec.precision = precision;
      spec.train.async_save = async;
      TemporaryFolder whole_folder;
      TrainingRun whole(spec, Device::cpu, whole_folder.path());
      whole.init_weights();
      Losses expected;
      Progress progress = beginning(whole);
      train(whole, progress, expected);

      for (const std::int64_t stop : {1, 5, 11}) {
        TemporaryFolder folder;
        Losses first, second;
        {
          TrainingRun run(spec, Device::cpu, folder.path());
          run.init_weights();
          first.stop_after = stop;
          Progress p = beginning(run);
          EXPECT_EQ(train(run, p, first), Ending::stopped);
          EXPECT_EQ(p.step, stop);
        }
        TrainingRun run(spec, Device::cpu, folder.path());
        const auto checkpoint = open_newest_whole(folder.path());
        ASSERT_TRUE(checkpoint);
        Progress p = resume(run, *checkpoint, [](const std::string& line) { ADD_FAILURE() << line; });
        EXPECT_EQ(p.step, stop);
        EXPECT_EQ(train(run, p, second), Ending::finished);
        EXPECT_EQ(state_bytes(run), state_bytes(whole)) << name_of(precision.compute) << " stopped after " << stop;
        first.all.insert(first.all.end(), second.all.begin(), second.all.end());
        EXPECT_EQ(first.all, expected.all);
      }
    }
  }
}

class ResumeWith : public ::testing::Test {
 protected:
  void SetUp() override {
    TrainingRun run(run_of_twelve_steps(), Device::cpu, folder_.path());
    run.init_weights();
    Losses losses;
    losses.stop_after = 2;
    Progress p = beginning(run);
    train(run, p, losses);
  }
  // The notes of going on under another spec.
  std::string go_on(const RunSpec& spec) {
    TrainingRun run(spec, Device::cpu, folder_.path());
    std::string notes;
    Progress p = resume(run, *open_newest_whole(folder_.path()), [&](const std::string& n) { notes += n + "\n"; });
    EXPECT_EQ(p.samples, 12);
    Losses losses;
    train(run, p, losses);
    EXPECT_EQ(p.step, spec.train.steps);
    return notes;
  }
  std::string refusal(const RunSpec& spec) {
    try {
      go_on(spec);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "accepted";
  }
  TemporaryFolder folder_;
};

TEST_F(ResumeWith, AnotherLengthRateBatchAndThreadsGoesOnWithAWord) {
  RunSpec spec = run_of_twelve_steps();
  spec.train.steps = 14;
  spec.optimizer.learning_rate = 5e-3;
  spec.train.global_batch = 4;
  spec.layout.micro = 2;
  spec.run.threads = 2;
  const std::string notes = go_on(spec);
  for (const char* line : {"train.steps changes from 12 to 14", "optim.lr changes from 0.01 to 0.005",
                           "train.global_batch changes from 6 to 4", "layout.micro changes from 3 to 2",
                           "run.threads changes from 1 to 2"})
    EXPECT_THAT(notes, ::testing::HasSubstr(line));
}

TEST_F(ResumeWith, AnotherModelDataSeedOptimizerOrPrecisionIsRefusedByName) {
  const auto changed = [&](auto&& change) {
    RunSpec spec = run_of_twelve_steps();
    change(spec);
    return refusal(spec);
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(changed([](RunSpec& s) { s.model.rope_theta = 7, s.model.norm_eps = 1e-3; }),
              HasSubstr("model.norm_eps was"));
  EXPECT_THAT(changed([](RunSpec& s) { s.model.dropout = 0; }), HasSubstr("model.dropout was"));
  EXPECT_THAT(changed([](RunSpec& s) { s.data.seq = 4; }), HasSubstr("data.seq was 8"));
  EXPECT_THAT(changed([](RunSpec& s) { s.train.seed = 9; }), HasSubstr("train.seed was 4"));
  EXPECT_THAT(changed([](RunSpec& s) { s.data.synthetic->seed = 9; }), HasSubstr("data.synthetic.seed was 0"));
  EXPECT_THAT(changed([](RunSpec& s) { s.optimizer.kind = OptimizerKind::sgd; }), HasSubstr("optim."));
  EXPECT_THAT(changed([](RunSpec& s) { s.precision = Precision::bf16; }), HasSubstr("precision.compute was"));
  EXPECT_THAT(changed([](RunSpec& s) { s.precision.moments = StateType::bf16; }),
              HasSubstr("precision.moments was \"fp32\" in the checkpoint's run and is \"bf16\" now; put it back"));
  RunSpec spec = run_of_twelve_steps();
  spec.data.synthetic.reset();
  spec.data.example = true;
  spec.model.vocabulary = 257;
  EXPECT_NE(refusal(spec), "accepted");
}

TEST(Resume, GradientsMayBeSummedInAnotherTypeFromNowOn) {
  RunSpec spec = run_of_twelve_steps();
  spec.precision = Precision::bf16;
  TemporaryFolder folder;
  {
    TrainingRun run(spec, Device::cpu, folder.path());
    run.init_weights();
    Losses losses;
    losses.stop_after = 2;
    Progress p = beginning(run);
    train(run, p, losses);
  }
  spec.precision.gradients = StateType::bf16;
  TrainingRun run(spec, Device::cpu, folder.path());
  std::string notes;
  resume(run, *open_newest_whole(folder.path()), [&](const std::string& n) { notes += n; });
  EXPECT_EQ(notes, "precision.gradients changes from \"fp32\" to \"bf16\"");
}

TEST(Loop, EvaluatesAndSavesWhenDueAndAtTheEnd) {
  struct Log final : Watcher {
    std::string text;
    void evaluated(const EvalRecord& r) override { text += fmt::format("e{} ", r.step); }
    void saving(std::int64_t step) override { text += fmt::format("s{} ", step); }
  } log;
  RunSpec spec = run_of_twelve_steps();
  spec.train.steps = 5;
  spec.train.eval_every = 2;
  spec.train.save_every = 3;
  TemporaryFolder folder;
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  Progress p = beginning(run);
  train(run, p, log);
  EXPECT_EQ(log.text, "e2 s3 e4 e5 s5 ");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<std::int64_t>{3, 5}));
}

TEST(Loop, ABadValueStopsOrIsSkippedAsTheRunSays) {
  struct Log final : Watcher {
    std::string notes, reason;
    std::int64_t steps = 0, updated = 0;
    void note(const std::string& line) override { notes += line + "\n"; }
    void ended_by(const std::string& why) override { reason = why; }
    void stepped(const StepRecord& r) override { ++steps, updated += r.updated; }
  };
  for (const BadValues rule : {BadValues::stop, BadValues::skip}) {
    RunSpec spec = run_of_twelve_steps();
    spec.train.bad_values = rule;
    spec.train.steps = 4;
    TemporaryFolder folder;
    TrainingRun run(spec, Device::cpu, folder.path());
    run.init_weights();
    run.replica().tensors()[0].master.data<float>()[3] = std::numeric_limits<float>::infinity();
    Log log;
    Progress p = beginning(run);
    // Also of one that skips, since in the end the weights themselves are not finite: nothing good is there to save.
    EXPECT_EQ(train(run, p, log), Ending::bad_values);
    EXPECT_TRUE(steps_in(folder.path()).empty());
    EXPECT_EQ(log.steps, rule == BadValues::stop ? 1 : 4);
    EXPECT_EQ(log.updated, 0);
    EXPECT_EQ(p.updates, 0);
    EXPECT_THAT(rule == BadValues::stop ? log.reason : log.notes,
                ::testing::HasSubstr("nothing was updated; the first was the weight "));
  }
}

}  // namespace
}  // namespace lockstep::tests
