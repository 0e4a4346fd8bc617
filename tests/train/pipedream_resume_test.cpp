// Runs without a flush are emptied where they are saved or evaluated, and continue from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

using StagesState = std::vector<std::vector<char>>;  // by rank

constexpr std::int64_t kUnflushedEnd = 12;

RunSpec unflushed_run(ScheduleKind kind, std::int64_t pp, std::int64_t save_every) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kUnflushedEnd, .global_batch = 12, .save_every = save_every, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.layout = {.pp = pp, .schedule = kind, .micro = 3};
  spec.run.threads = 1;
  return spec;
}

struct StopsUnflushed final : Watcher {
  std::int64_t step = 0, after = 0;
  std::vector<double> losses;
  std::string reason;
  void stepped(const StepRecord& record) override {
    step = record.step;
    losses.push_back(record.loss);
  }
  bool wants_stop() override { return after > 0 && step >= after; }
  void ended_by(const std::string& text) override { reason = text; }
};

struct Ended {
  StagesState states;
  std::vector<double> losses;
  Ending how = Ending::finished;
  std::string reason;
};

Ended train_unflushed(const RunSpec& spec, const std::filesystem::path& folder, const std::filesystem::path& from = {},
                      std::int64_t stop_after = 0) {
  Ended ended{.states = StagesState(static_cast<std::size_t>(spec.layout.ranks())), .losses = {}, .reason = {}};
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    StopsUnflushed watcher;
    if (group->rank() == 1) watcher.after = stop_after;
    const Ending how = train(run, progress, watcher);
    ended.states[static_cast<std::size_t>(group->rank())] = state_bytes(run);
    if (group->rank() != 0) return;
    ended.how = how;
    ended.losses = watcher.losses;
    ended.reason = watcher.reason;
  });
  return ended;
}

constexpr std::array kKinds{ScheduleKind::pipedream, ScheduleKind::pipedream_2bw};

TEST(PipeDreamResume, ContinuesWithTheBitsOfARunThatWasSavedThere) {
  for (const ScheduleKind kind : kKinds) {
    const RunSpec spec = unflushed_run(kind, 3, 6);
    const TemporaryFolder stayed, resumed;
    const Ended whole = train_unflushed(spec, stayed.path());
    EXPECT_EQ(std::ssize(whole.losses), kUnflushedEnd);
    EXPECT_TRUE(train_unflushed(spec, resumed.path(), stayed.path() / step_folder_name(6)).states == whole.states);
  }
}

TEST(PipeDreamResume, AnEvaluationOrAStopIsAPlaceWhereARunIsEmptied) {
  for (const ScheduleKind kind : kKinds) {
    const TemporaryFolder saved, evaluated, stopped, resumed, never;
    const Ended whole = train_unflushed(unflushed_run(kind, 3, 7), saved.path());
    RunSpec evaluates = unflushed_run(kind, 3, 0);
    evaluates.train.eval_every = 7;
    evaluates.train.eval_batches = 1;
    EXPECT_TRUE(train_unflushed(evaluates, evaluated.path()).states == whole.states);
    const RunSpec plain = unflushed_run(kind, 3, 0);
    EXPECT_EQ(train_unflushed(plain, stopped.path(), {}, 7).how, Ending::stopped);
    std::filesystem::path last;
    for (std::int64_t step = kUnflushedEnd; step > 0 && last.empty(); --step)
      if (const auto at = stopped.path() / step_folder_name(step); std::filesystem::exists(at)) last = at;
    ASSERT_FALSE(last.empty());
    RunSpec there = unflushed_run(
        kind, 3, std::stoll(last.filename().string().substr(last.filename().string().find_first_of("0123456789"))));
    const TemporaryFolder again;
    EXPECT_TRUE(train_unflushed(plain, resumed.path(), last).states == train_unflushed(there, again.path()).states);
    EXPECT_FALSE(train_unflushed(plain, never.path()).states == whole.states) << "it is no empty claim";
  }
}

// A checkpoint is of logical tensors: 2BW, which is the same on any number of stages but for clipping, continues on
// another.
TEST(PipeDreamResume, ContinuesOnAnotherNumberOfStages) {
  RunSpec three = unflushed_run(ScheduleKind::pipedream_2bw, 3, 6),
          two = unflushed_run(ScheduleKind::pipedream_2bw, 2, 6);
  three.optimizer.clip = two.optimizer.clip = 0;
  const TemporaryFolder stayed, resumed;
  const Ended whole = train_unflushed(three, stayed.path());
  const Ended rest = train_unflushed(two, resumed.path(), stayed.path() / step_folder_name(6));
  EXPECT_EQ(std::vector(whole.losses.begin() + 6, whole.losses.end()), rest.losses);
}

// A stage that finds a bad value updates nothing more; the others have gone on, so nothing is saved.
TEST(PipeDreamResume, ARunOfABadValueEndsWithTheCheckpointBefore) {
  for (const ScheduleKind kind : kKinds) {
    RunSpec spec = unflushed_run(kind, 3, 4);
    spec.optimizer.learning_rate = 1e38;
    const TemporaryFolder folder;
    const Ended ended = train_unflushed(spec, folder.path());
    EXPECT_EQ(ended.how, Ending::bad_values);
    EXPECT_THAT(ended.reason, ::testing::HasSubstr("a value is not finite"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / step_folder_name(kUnflushedEnd)));
  }
}

}  // namespace
}  // namespace lockstep::tests
