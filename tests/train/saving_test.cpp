// A disk that takes no checkpoint for a while costs a run nothing, and is told at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_events.h"
#include "train/saving.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunSpec saving_run(int ranks, bool async) {
  RunSpec spec;
  spec.model = tiny_specs().front().spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 6, .global_batch = 6, .save_every = 2, .keep = 100, .async_save = async, .save_retry = 0};
  spec.layout.dp = ranks;
  spec.run.threads = 1;
  return spec;
}

// A folder of checkpoints that takes none: a file has its place. Needs no rights, and root has no more than others.
class TakesNone {
 public:
  explicit TakesNone(fs::path folder) : folder_(std::move(folder)) {}
  void begin() const {
    fs::remove_all(folder_);
    std::ofstream(folder_) << "in the way";
  }
  void end() const { fs::remove(folder_); }

 private:
  fs::path folder_;
};

struct ToldLines final : Watcher {
  std::vector<std::string> all;  // in order
  bool failed = false;           // a save, as far as was told
  std::function<void(std::int64_t step, bool failed)> after = [](std::int64_t, bool) {};
  void stepped(const StepRecord& r) override {
    all.push_back(fmt::format("step {}", r.step));
    after(r.step, failed);
  }
  void saved(std::int64_t step) override { all.push_back(fmt::format("saved {}", step)); }
  void note(const std::string& line) override {
    all.push_back(line);
    failed = failed || line.find("checkpoint not saved") != std::string::npos;
  }
  std::vector<std::string> without_steps() const {
    std::vector<std::string> rest;
    for (const std::string& line : all)
      if (!line.starts_with("step ") || line.find(':') != std::string::npos) rest.push_back(line);
    return rest;
  }
};

// Trains with checkpoints that cannot be saved from the beginning; what rank 0 was told, and what each rank threw.
struct SavingOutcome {
  ToldLines told;
  std::vector<std::string> threw;
};
SavingOutcome train_on(
    const RunSpec& spec, const fs::path& folder,
    std::function<void(std::int64_t step, bool failed)> after = [](std::int64_t, bool) {}) {
  const int count = static_cast<int>(spec.layout.ranks());
  SavingOutcome outcome;
  outcome.told.after = std::move(after);
  outcome.threw.resize(static_cast<std::size_t>(count));
  run_ranks(count, [&](std::unique_ptr<Communicator> ranks) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = count > 1 ? ranks.get() : nullptr});
    run.init_weights();
    ranks->barrier()->wait();
    if (ranks->rank() == 0) TakesNone(folder).begin();
    ranks->barrier()->wait();
    Watcher silent;
    Progress progress = beginning(run);
    try {
      EXPECT_EQ(train(run, progress, ranks->rank() == 0 ? outcome.told : silent), Ending::finished);
    } catch (const EnvironmentError& error) {
      outcome.threw[static_cast<std::size_t>(ranks->rank())] = error.what();
    }
    EXPECT_EQ(progress.step, spec.train.steps) << "the disk is no reason to stop";
  });
  return outcome;
}

class SavingTo : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  bool async() const { return std::get<1>(GetParam()); }
  TemporaryFolder folder_;
  fs::path checkpoints_ = folder_.path() / "checkpoints";
};

// A copy in memory is of a later step than what is on the disk.
TEST(SavingAfterACopy, KnowsTheCheckpointThatIsOnTheDisk) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder.path() / "checkpoints";
  RunSpec spec = saving_run(1, true);
  spec.train.steps = 4;
  Watcher silent;
  {
    TrainingRun run(spec, Device::cpu, checkpoints);
    run.init_weights();
    Progress progress = beginning(run);
    EXPECT_EQ(train(run, progress, silent), Ending::finished);
  }
  TrainingRun run(spec, Device::cpu, checkpoints);
  RunEvents events(run, silent, 0);
  const auto newest = [&](std::int64_t step) {
    Progress progress = beginning(run);
    progress.step = step;
    return Saving(run, silent, events, progress).newest();
  };
  EXPECT_EQ(newest(5), 4);
  EXPECT_EQ(newest(3), 2) << "4 is of a past that is no more";
  EXPECT_EQ(newest(1), -1);
  EXPECT_EQ(newest(4), 4);
}

TEST_P(SavingTo, AFullDiskIsToldAtOnceAndTheStateIsSavedWhenThereIsRoom) {
  const SavingOutcome o = train_on(saving_run(ranks(), async()), checkpoints_, [&](std::int64_t step, bool) {
    if (step == 5) TakesNone(checkpoints_).end();
  });
  EXPECT_THAT(o.threw, ::testing::Each(""));
  const auto told = o.told.without_steps();
  ASSERT_GE(told.size(), 2u);
  EXPECT_THAT(told.front(), AllOf(HasSubstr("step 2: checkpoint not saved: "), HasSubstr("mkdir failed"),
                                  HasSubstr("; the run continues and tries again")));
  EXPECT_EQ(told.back(), "saved 6");
  EXPECT_EQ(std::count(told.begin(), told.end(), "saved 2"), 0) << "announced, and it was not there";
  EXPECT_EQ(open_newest_whole(checkpoints_)->progress().step, 6);
}

TEST_P(SavingTo, ADiskThatStaysFullEndsTheRunOnlyWhenItsLastStateCannotBeSaved) {
  const SavingOutcome o = train_on(saving_run(ranks(), async()), checkpoints_);
  for (const std::string& words : o.threw)
    EXPECT_THAT(words, AllOf(HasSubstr("mkdir failed"), HasSubstr("step 6 could not be saved within train.save_retry"),
                             HasSubstr("there is no checkpoint")));
  for (const std::string& line : o.told.all) EXPECT_THAT(line, Not(HasSubstr("saved 6")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SavingTo, ::testing::Combine(::testing::Values(1, 3), ::testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}Ranks{}", std::get<0>(info.param),
                                              std::get<1>(info.param) ? "Async" : "Sync");
                         });

// Long before the next save is due: from the snapshot, or, where there is none, the state of then.
TEST(Saving, IsTriedAgainWhileTheRunContinues) {
  for (const bool async : {true, false}) {
    const TemporaryFolder folder;
    const fs::path checkpoints = folder.path() / "checkpoints";
    RunSpec spec = saving_run(async ? 1 : 2, async);
    spec.train.save_every = 40;
    spec.train.steps = 79;
    bool room = false;
    const SavingOutcome o = train_on(spec, checkpoints, [&](std::int64_t step, bool failed) {
      if (failed && !std::exchange(room, true)) TakesNone(checkpoints).end();
      if (step > 40) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    const auto told = o.told.without_steps();
    ASSERT_EQ(told.size(), 3u) << (async ? "async" : "sync");
    EXPECT_THAT(told[0], HasSubstr("step 40: checkpoint not saved"));
    ASSERT_THAT(told[1], HasSubstr("saved "));
    const std::int64_t step = std::stoll(told[1].substr(6));
    if (async)
      EXPECT_EQ(step, 40);
    else
      EXPECT_TRUE(step > 40 && step < 79) << step;
    EXPECT_EQ(told[2], "saved 79");
    EXPECT_EQ(open_checkpoint(checkpoints / step_folder_name(step)).progress().samples, step * 6);
  }
}

TEST(Saving, IsToldWhenItIsOnTheDisk) {
  const TemporaryFolder folder;
  struct Looking final : Watcher {
    fs::path folder;
    std::vector<std::string> all;
    void saving(std::int64_t step) override { all.push_back(fmt::format("saving {}", step)); }
    void saved(std::int64_t step) override {
      all.push_back(fmt::format("saved {}", step));
      EXPECT_EQ(open_checkpoint(folder / step_folder_name(step)).progress().step, step);
    }
  } looking;
  looking.folder = folder.path();
  const RunSpec spec = saving_run(1, true);
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  Progress progress = beginning(run);
  train(run, progress, looking);
  std::vector<std::string> in_order;
  for (const int step : {2, 4, 6})
    for (const char* what : {"saving", "saved"}) {
      EXPECT_EQ(std::count(looking.all.begin(), looking.all.end(), fmt::format("{} {}", what, step)), 1);
      in_order.push_back(fmt::format("{} {}", what, step));
    }
  std::vector<std::string> seen = looking.all;
  std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.back() < b.back(); });
  EXPECT_EQ(seen, in_order) << "each after it was begun";
}

}  // namespace
}  // namespace lockstep::tests
