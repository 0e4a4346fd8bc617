// Masters and moments of 16 bits in every layout: the layouts that keep the order of sums learn one rank's bits, the
// others update as one rank does, and checkpoints hold what is held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "spec/layout/layout_toml.h"
#include "support/injected_faults.h"
#include "support/learning_ranks.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"
#include "train/layout_trial.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

constexpr PrecisionSpec kHalfMasters(Precision::bf16, StateType::full, StateType::full, StateType::bf16),
    kHalfMoments(Precision::bf16, StateType::full, StateType::bf16),
    kHalfStates(Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16);

// `verify`: given a layout's gradients, one rank's update has the layout's bits, also where tp splits tensors by rows,
// by columns and in parts that alternate.
TEST(HalfStates, UpdateInEveryLayoutAsOnOneRank) {
  for (const std::size_t model : {0U, 6U})  // Llama, GPT-2
    for (const PrecisionSpec& precision : {kHalfMoments, kHalfStates}) {
      ModelSpec spec = tiny_specs()[model].spec;
      spec.width = spec.vocabulary = 64;
      spec.heads = 4;
      spec.kv_heads = spec.family == Family::gpt2 ? 4 : 2;
      spec.head_width = 16;
      spec.ffn_width = 90;
      spec.init_std = 0.02;
      RunSpec run = trial_run(spec, 16, 3, Precision::bf16);
      run.precision = precision;
      std::vector<LayoutSpec> layouts;
      for (const char* text : {"dp=1", "tp=2", "tp=4,sp=off", "cp=2", "pp=2,micro=4", "dp=4,zero=2",
                               "dp=2,dp_kind=central", "dp=2,tp=2,zero=3", "dp=2,pp=2,tp=2,zero=1,micro=2"})
        layouts.push_back(parse_layout(text));
      for (const LayoutVerdict& v : compare_layouts(run, layouts, {}).verdicts)
        EXPECT_FALSE(v.first || v.undecided)
            << tiny_specs()[model].name << ", " << to_text(v.layout) << ": " << (v.first ? v.first : v.undecided)->what
            << ", " << v.rounding->share << " of what is allowed";
    }
}

// What keeps the order of sums keeps every bit, and every rank's copy.
TEST(HalfStates, LearnOneRanksBitsWhereSumsKeepTheirOrder) {
  const NamedSpec model = tiny_specs()[1];
  for (const PrecisionSpec& precision : {kHalfMasters, kHalfStates}) {
    const Learned one = learn(model.spec, {.micro = 4}, precision);
    expect_equal(learn(model.spec, {.pp = 2, .micro = 4}, precision), one, "pp=2");
    for (const std::int64_t tp : {1, 3}) {
      const LayoutSpec plain{.dp = 3, .tp = tp, .micro = 2, .grad_sync = GradSync::step};
      const Learned whole = learn(model.spec, plain, precision);
      for (const int stage : {1, 2, 3}) {
        LayoutSpec layout = plain;
        layout.zero = stage;
        expect_equal(learn(model.spec, layout, precision), whole, to_text(layout));
      }
      LayoutSpec layout = plain;
      layout.overlap = Switch::off;
      expect_equal(learn(model.spec, layout, precision), whole, to_text(layout));
    }
  }
}

// A layout that reads a checkpoint and writes it loses nothing of it, and a resumed run draws the chances that it would
// have drawn.
TEST(HalfStates, ResumeFromAnyLayoutWithTheBitsOfARunThatWasNotInterrupted) {
  const std::vector<std::vector<LayoutSpec>> same_sums = {{{.micro = 4}, {.pp = 2, .micro = 4}},
                                                          {{.dp = 2, .grad_sync = GradSync::step},
                                                           {.dp = 2, .zero = 1, .grad_sync = GradSync::step},
                                                           {.dp = 2, .zero = 3, .grad_sync = GradSync::step}}};
  for (const std::size_t model : {1U, 6U})  // tied; fused projections
    for (const std::vector<LayoutSpec>& layouts : same_sums) {
      const auto run_of = [&](const LayoutSpec& layout) {
        RunSpec run = resumed_run(tiny_specs()[model].spec, layout);
        run.data.seq = 12;
        run.precision = kHalfStates;
        return run;
      };
      const TemporaryFolder folder;
      const TrainedState stayed = train_all(run_of(layouts[0]), folder.path());
      const std::filesystem::path saved = folder.path() / step_folder_name(kSavedStep);
      for (const LayoutSpec& to : layouts) {
        const TemporaryFolder unused;
        EXPECT_TRUE(train_all(run_of(to), unused.path(), saved) == stayed) << to_text(to);
      }
      for (const LayoutSpec& between : {LayoutSpec{.tp = 3}, LayoutSpec{.dp = 2, .tp = 2, .zero = 3}}) {
        const TemporaryFolder other, unused;
        resave(run_of(between), other.path(), saved);
        EXPECT_TRUE(train_all(run_of(layouts[0]), unused.path(), other.path() / step_folder_name(kSavedStep)) == stayed)
            << "by way of " << to_text(between);
      }
    }
}

TEST(HalfStates, ARunDoesNotChangeTheTypeOfItsMasters) {
  RunSpec run = resumed_run(tiny_specs()[0].spec, {});
  run.precision = Precision::bf16;
  const TemporaryFolder folder;
  train_all(run, folder.path());
  run.precision = kHalfMasters;
  TrainingRun other(run, Device::cpu, folder.path());
  try {
    resume(other, open_checkpoint(folder.path() / step_folder_name(kSavedStep)), [](const std::string&) {});
    FAIL() << "it resumed";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(),
                ::testing::HasSubstr("precision.master was \"fp32\" in the checkpoint's run and is \"bf16\" now"));
  }
}

}  // namespace
}  // namespace lockstep::tests
