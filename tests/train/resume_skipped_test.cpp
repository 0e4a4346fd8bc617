// Steps, updates and samples are three counts: after a step that was skipped, and after another batch size, a run that
// resumes continues each where it was, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

RunSpec skipping_run() {
  RunSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.dropout > 0) spec.model = named.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 10, .global_batch = 6, .keep = 100, .seed = 4, .bad_values = BadValues::skip};
  spec.optimizer.learning_rate = 1e-2;
  spec.layout.micro = 3;
  spec.run.threads = 1;
  return spec;
}

// Makes some steps bad: a weight is infinite while they run, and has its value again after them.
struct StepSpoiler final : Watcher {
  TrainingRun* run = nullptr;
  std::vector<std::int64_t> bad_steps;  // from 1 on
  std::int64_t stop_after = -1;
  std::vector<double> losses;
  std::vector<bool> updated;
  float kept = 0;

  float& weight() const { return run->replica().tensors()[0].master.data<float>()[3]; }
  bool is_bad(std::int64_t step) const { return std::ranges::find(bad_steps, step) != bad_steps.end(); }
  void stepped(const StepRecord& r) override {
    losses.push_back(r.loss);
    updated.push_back(r.updated);
    if (is_bad(r.step)) weight() = kept;
    if (is_bad(r.step + 1)) {
      kept = weight();
      weight() = std::numeric_limits<float>::infinity();
    }
    done = r.step;
  }
  bool wants_stop() override { return done == stop_after; }
  std::int64_t done = 0;
};

TEST(ResumeAfterASkippedStep, StepsUpdatesAndDropoutContinueToTheBit) {
  ASSERT_GT(skipping_run().model.dropout, 0);
  const std::vector<std::int64_t> bad{3, 4};
  const TemporaryFolder whole_folder;
  TrainingRun whole(skipping_run(), Device::cpu, whole_folder.path());
  whole.init_weights();
  StepSpoiler expected;
  expected.run = &whole;
  expected.bad_steps = bad;
  Progress progress = beginning(whole);
  EXPECT_EQ(train(whole, progress, expected), Ending::finished);
  EXPECT_EQ(expected.updated, (std::vector<bool>{true, true, false, false, true, true, true, true, true, true}));
  EXPECT_EQ(progress.step, 10);
  EXPECT_EQ(progress.updates, 8);
  EXPECT_EQ(progress.samples, 60);

  const TemporaryFolder folder;
  {
    TrainingRun run(skipping_run(), Device::cpu, folder.path());
    run.init_weights();
    StepSpoiler first;
    first.run = &run;
    first.bad_steps = bad;
    first.stop_after = 6;
    Progress p = beginning(run);
    EXPECT_EQ(train(run, p, first), Ending::stopped);
  }
  const auto checkpoint = open_newest_whole(folder.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->progress().step, 6);
  EXPECT_EQ(checkpoint->progress().updates, 4) << "two steps were skipped";
  EXPECT_EQ(checkpoint->progress().samples, 36) << "and their samples consumed";
  TrainingRun run(skipping_run(), Device::cpu, folder.path());
  Progress p = resume(run, *checkpoint, [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_EQ(p.step, 6);
  EXPECT_EQ(p.updates, 4);
  EXPECT_EQ(p.samples, 36);
  StepSpoiler second;
  second.run = &run;
  EXPECT_EQ(train(run, p, second), Ending::finished);
  EXPECT_EQ(p.updates, 8);
  EXPECT_EQ(second.losses, std::vector<double>(expected.losses.begin() + 6, expected.losses.end()));
  EXPECT_EQ(state_bytes(run), state_bytes(whole));
}

TEST(ResumeWithAnotherBatch, SamplesContinueWhereTheyWere) {
  const TemporaryFolder folder, straight, broken;
  {
    TrainingRun run(skipping_run(), Device::cpu, folder.path());
    run.init_weights();
    StepSpoiler first;
    first.run = &run;
    first.stop_after = 4;
    Progress p = beginning(run);
    train(run, p, first);
    EXPECT_EQ(p.samples, 24);
  }
  RunSpec smaller = skipping_run();
  smaller.train.global_batch = 4;
  smaller.layout.micro = 2;
  const auto go_on = [&](const std::filesystem::path& from, const TemporaryFolder& to, std::int64_t stop,
                         std::int64_t samples) {
    TrainingRun run(smaller, Device::cpu, to.path());
    Progress p = resume(run, *open_newest_whole(from), [](const std::string&) {});
    EXPECT_EQ(p.samples, samples);
    StepSpoiler trained;
    trained.run = &run;
    trained.stop_after = stop;
    train(run, p, trained);
    return std::pair(trained.losses, state_bytes(run));
  };
  const auto unbroken = go_on(folder.path(), straight, -1, 24);
  // Four steps of six samples: the next step begins with sample 24, whatever four times four is.
  {
    TrainingRun run(smaller, Device::cpu, straight.path() / "unused");
    resume(run, *open_newest_whole(folder.path()), [](const std::string&) {});
    EXPECT_EQ(unbroken.first.front(), run.compute_gradients(24, 1e-3));
    EXPECT_NE(unbroken.first.front(), run.compute_gradients(16, 1e-3)) << "the test can tell";
  }
  auto first = go_on(folder.path(), broken, 7, 24);
  const auto rest = go_on(broken.path(), broken, -1, 24 + 3 * 4);
  first.first.insert(first.first.end(), rest.first.begin(), rest.first.end());
  EXPECT_EQ(first.first, unbroken.first);
  EXPECT_EQ(rest.second, unbroken.second);
}

}  // namespace
}  // namespace lockstep::tests
