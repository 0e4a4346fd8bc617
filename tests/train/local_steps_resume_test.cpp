// Runs with local steps are saved where their replicas agree, and continue from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

using StatesByRank = std::vector<std::vector<char>>;

constexpr std::int64_t kLocalSave = 6, kLocalEnd = 12;

RunSpec local_run(const LayoutSpec& layout, OuterStep outer = OuterStep::nesterov) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kLocalEnd, .global_batch = 12, .save_every = kLocalSave, .keep = 100, .seed = 4};
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.layout = layout;
  spec.sync.kind = SyncKind::partial;
  spec.sync.every = 3;
  spec.sync.outer = outer;
  spec.run.threads = 1;
  return spec;
}

struct StopsAfter final : Watcher {
  std::int64_t step = 0, after = 0;
  void stepped(const StepRecord& record) override { step = record.step; }
  bool wants_stop() override { return after > 0 && step >= after; }
};

// Trains to the end, or until a rank asks to stop; the state of each rank then.
StatesByRank train_locally(const RunSpec& spec, const std::filesystem::path& folder,
                           const std::filesystem::path& from = {}, std::int64_t stop_after = 0) {
  StatesByRank ended(static_cast<std::size_t>(spec.layout.ranks()));
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    StopsAfter watcher;
    if (group->rank() == 1) watcher.after = stop_after;
    train(run, progress, watcher);
    ended[static_cast<std::size_t>(group->rank())] = state_bytes(run);
  });
  return ended;
}

// What a checkpoint says, as ranks of that layout begin with it.
StatesByRank states_in(const RunSpec& spec, const std::filesystem::path& checkpoint) {
  const TemporaryFolder unused;
  StatesByRank begun(static_cast<std::size_t>(spec.layout.ranks()));
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, unused.path(), {.ranks = group.get()});
    resume(run, open_checkpoint(checkpoint), [](const std::string&) {});
    begun[static_cast<std::size_t>(group->rank())] = state_bytes(run);
  });
  return begun;
}

TEST(LocalStepsResume, ContinuesWithTheBitsOfAnUnbrokenRun) {
  for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov}) {
    const RunSpec spec = local_run({.dp = 3, .micro = 2}, outer);
    const TemporaryFolder stayed, resumed;
    const StatesByRank whole = train_locally(spec, stayed.path());
    EXPECT_NE(whole[0], whole[1]) << "moments are each replica's own";
    const std::filesystem::path saved = stayed.path() / step_folder_name(kLocalSave);
    EXPECT_TRUE(train_locally(spec, resumed.path(), saved) == whole);
  }
}

// A pipeline keeps the order of sums.
TEST(LocalStepsResume, ContinuesInAnotherLayoutOfTheReplicas) {
  const RunSpec spec = local_run({.dp = 3, .micro = 2}), piped = local_run({.dp = 3, .pp = 2, .micro = 2});
  const TemporaryFolder stayed, resumed;
  const StatesByRank whole = train_locally(spec, stayed.path());
  train_locally(piped, resumed.path(), stayed.path() / step_folder_name(kLocalSave));
  EXPECT_TRUE(states_in(spec, resumed.path() / step_folder_name(kLocalEnd)) == whole);
}

TEST(LocalStepsResume, BeginsWithTheMomentsOfASynchronousRun) {
  RunSpec ddp = local_run({.dp = 2, .micro = 2}, OuterStep::average);
  ddp.sync = {};
  const TemporaryFolder folder;
  const StatesByRank whole = train_locally(ddp, folder.path());
  const std::filesystem::path end = folder.path() / step_folder_name(kLocalEnd);
  for (const auto& state : states_in(local_run({.dp = 3, .micro = 2}, OuterStep::average), end))
    EXPECT_TRUE(state == whole[0]);
}

std::string refused_words(const RunSpec& spec, const std::filesystem::path& checkpoint) {
  try {
    states_in(spec, checkpoint);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(LocalStepsResume, AnotherNumberOfReplicasIsRefused) {
  const TemporaryFolder folder;
  train_locally(local_run({.dp = 3, .micro = 2}), folder.path());
  const std::filesystem::path saved = folder.path() / step_folder_name(kLocalSave);
  EXPECT_THAT(refused_words(local_run({.dp = 2, .micro = 2}), saved),
              ::testing::HasSubstr("moments of 3 groups of replicas that took local steps, and the run has 2"));
  RunSpec full = local_run({.dp = 3, .micro = 2});
  full.sync = {};
  EXPECT_THAT(refused_words(full, saved), ::testing::HasSubstr("and the run has 1; resume with [sync] as it was"));
}

TEST(LocalStepsResume, ARunThatIsToStopDoesSoWhereReplicasAgree) {
  const RunSpec spec = local_run({.dp = 3, .micro = 2});
  const TemporaryFolder stayed, stopped, resumed;
  const StatesByRank whole = train_locally(spec, stayed.path());
  train_locally(spec, stopped.path(), {}, 7);  // asked for after step 7, done after step 9
  EXPECT_FALSE(std::filesystem::exists(stopped.path() / step_folder_name(7)));
  ASSERT_TRUE(std::filesystem::exists(stopped.path() / step_folder_name(9)));
  EXPECT_TRUE(train_locally(spec, resumed.path(), stopped.path() / step_folder_name(9)) == whole);
}

}  // namespace
}  // namespace lockstep::tests
