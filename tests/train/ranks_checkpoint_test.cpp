// What any number of ranks saved together, any number goes on from, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "base/error.h"
#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/state_bytes.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using State = std::vector<char>;

constexpr int kCounts[] = {1, 2, 3, 5};
constexpr std::int64_t kSaved = 3, kSteps = 5;

RunSpec run_of_ranks(int ranks, bool async = true) {
  RunSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.dropout > 0) spec.model = named.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kSteps, .global_batch = 30, .save_every = kSaved, .keep = 100, .seed = 4};
  spec.train.async_save = async;
  spec.optimizer.learning_rate = 1e-2;
  spec.optimizer.clip = 0.05;
  spec.schedule.warmup = 3;
  spec.layout.dp = ranks;
  spec.run.threads = 1;
  return spec;
}

// The state at the moment of each save.
struct Moments final : Watcher {
  TrainingRun* run = nullptr;
  std::vector<State> states;
  void saving(std::int64_t) override { states.push_back(state_bytes(*run)); }
};

struct StatesOfRanks {
  std::vector<State> begun, ended;             // of each rank
  std::vector<std::vector<State>> when_saved;  // of each rank, save after save
};

// Trains to the end as the spec says, from the beginning or from a checkpoint.
StatesOfRanks train_ranks(const RunSpec& spec, const fs::path& folder, const fs::path& from = {}) {
  const auto ranks = static_cast<std::size_t>(spec.layout.dp);
  StatesOfRanks all{std::vector<State>(ranks), std::vector<State>(ranks), std::vector<std::vector<State>>(ranks)};
  run_ranks(static_cast<int>(ranks), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group.get()});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    all.begun[rank] = state_bytes(run);
    Moments moments;
    moments.run = &run;
    train(run, progress, moments);
    all.ended[rank] = state_bytes(run);
    all.when_saved[rank] = std::move(moments.states);
  });
  return all;
}

// The same state in the form that one writer gives it.
fs::path saved_by_one(const fs::path& parts, const fs::path& folder) {
  const Checkpoint checkpoint = open_checkpoint(parts);
  TrainingRun run(run_of_ranks(1), Device::cpu, folder / "unused");
  resume(run, checkpoint, [](const std::string&) {});
  return save_checkpoint({.path = folder}, checkpoint.progress(), run.replica().state());
}

TEST(RanksCheckpoint, WhatAnyNumberSavedAnyNumberGoesOnFromToTheBit) {
  for (const int saved_by : kCounts) {
    const TemporaryFolder folder;
    const StatesOfRanks stayed = train_ranks(run_of_ranks(saved_by, saved_by != 3), folder.path());
    const fs::path parts = folder.path() / step_folder_name(kSaved);
    EXPECT_EQ(std::ssize(open_checkpoint(parts).manifest().files), saved_by);
    const fs::path whole = saved_by_one(parts, folder.path() / "one");
    for (const int resumed_by : kCounts) {
      const TemporaryFolder next, again;
      const StatesOfRanks run = train_ranks(run_of_ranks(resumed_by), next.path(), parts);
      const std::string what = fmt::format("saved by {}, resumed by {}", saved_by, resumed_by);
      for (const State& state : run.begun) EXPECT_TRUE(state == stayed.when_saved[0][0]) << what;
      EXPECT_FALSE(run.ended[0] == run.begun[0]) << what;
      EXPECT_TRUE(resumed_by != saved_by || run.ended == stayed.ended) << what;
      EXPECT_TRUE(run.ended == train_ranks(run_of_ranks(resumed_by), again.path(), whole).ended) << what;
    }
  }
}

TEST(RanksCheckpoint, EverySaveBesideTheTrainingIsOfItsStep) {
  for (const bool async : {true, false}) {
    RunSpec spec = run_of_ranks(3, async);
    spec.train.save_every = 1;
    const TemporaryFolder folder;
    const StatesOfRanks stayed = train_ranks(spec, folder.path());
    ASSERT_EQ(std::ssize(stayed.when_saved[0]), kSteps);
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      TrainingRun run(run_of_ranks(1), Device::cpu, folder / "unused");
      resume(run, open_checkpoint(folder.path() / step_folder_name(step)), [](const std::string&) {});
      EXPECT_TRUE(state_bytes(run) == stayed.when_saved[0][static_cast<std::size_t>(step - 1)]) << step;
    }
  }
}

TEST(RanksCheckpoint, InCentralDataParallelRankZeroWritesAllAndAnyLayoutGoesOn) {
  RunSpec central = run_of_ranks(3);
  central.layout.dp_kind = DpKind::central;
  const TemporaryFolder folder;
  const StatesOfRanks stayed = train_ranks(central, folder.path());
  const fs::path saved = folder.path() / step_folder_name(kSaved);
  EXPECT_EQ(open_checkpoint(saved).manifest().files.size(), 1u);
  EXPECT_TRUE(stayed.ended[1].empty()) << "only rank 0 has state";
  for (const int ranks : {1, 2, 3}) {
    const TemporaryFolder next, other;
    const StatesOfRanks replicas = train_ranks(run_of_ranks(ranks), next.path(), saved);
    for (const State& state : replicas.begun) EXPECT_TRUE(state == stayed.when_saved[0][0]) << ranks;
    RunSpec spec = central;
    spec.layout.dp = ranks;
    const StatesOfRanks run = train_ranks(spec, other.path(), saved);
    EXPECT_TRUE(run.begun[0] == stayed.when_saved[0][0]) << ranks;
    EXPECT_TRUE(ranks != 3 || run.ended[0] == stayed.ended[0]);
    // And back: what replicas saved, the central one goes on from.
    const TemporaryFolder back;
    EXPECT_TRUE(train_ranks(spec, back.path(), next.path() / step_folder_name(kSteps)).begun[0] == replicas.ended[0]);
  }
}

TEST(RanksCheckpoint, EveryRanksLedgerIsWhatMetaSays) {
  for (const DpKind kind : {DpKind::ddp, DpKind::central}) {
    for (const int ranks : {1, 3, 5}) {
      RunSpec spec = run_of_ranks(ranks);
      spec.layout.dp_kind = kind;
      const TemporaryFolder folder;
      std::int64_t total = 0, state = 0;  // bytes
      std::mutex mutex;
      run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
        const auto work = [&](TrainingRun& run) {
          run.init_weights();
          run.step(0, 1e-3);
          run.save({});
          run.wait_for_save();
        };
        TrainingRun real(spec, Device::cpu, folder.path(), {.ranks = group.get()});
        work(real);
        meta::Communicator others(group->rank(), ranks);
        TrainingRun counted(spec, Device::meta, "", {.ranks = &others});
        work(counted);
        EXPECT_EQ(real.ledger().rows(), counted.ledger().rows()) << "rank " << group->rank() << " of " << ranks;
        EXPECT_EQ(real.ledger().peak(), counted.ledger().peak());
        const std::lock_guard lock(mutex);
        total += real.ledger().rows().at({Tag::workspace, "checkpoint"}).current;
        if (group->rank() == 0) state = std::ssize(state_bytes(real));
      });
      EXPECT_GE(total, state);
      EXPECT_LE(total, state + state / 10 + ranks * 4096) << "a rank's snapshot is of its part alone";
    }
  }
}

// Where tensors are exchanged between devices, single numbers and what is told about files are not.
TEST(RanksCheckpoint, WhatIsToldAboutFilesGoesBetweenTheHosts) {
  const RunSpec spec = run_of_ranks(3);
  const TemporaryFolder folder;
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    CommLog of_hosts, of_ranks;
    Recorder hosts(std::move(group), of_hosts);
    const auto connect = [&](Communicator& all, Memory&, Stream&) {
      return std::make_unique<Recorder>(all.split([](int r) { return Place{0, r}; }, "replicas"), of_ranks);
    };
    TrainingRun run(spec, Device::cpu, folder.path(), {.ranks = &hosts, .connect = connect});
    run.init_weights();
    Progress progress = beginning(run);
    Watcher silent;
    train(run, progress, silent);
    EXPECT_TRUE(of_hosts.totals().contains({"checkpoint", CommOp::all_gather, DType::i64}));
    EXPECT_TRUE(of_hosts.totals().contains({"world", CommOp::all_reduce, DType::i64}));
    for (const auto& [key, total] : of_ranks.totals()) EXPECT_NE(std::get<DType>(key), DType::i64) << "from the host";
  });
  EXPECT_EQ(open_newest_whole(folder.path())->progress().step, kSteps);
}

TEST(RanksCheckpoint, AFolderThatIsLostEndsTheRunOnAllRanksWithItsName) {
  RunSpec spec = run_of_ranks(3);
  spec.train.save_retry = 0;
  const TemporaryFolder folder;
  const fs::path checkpoints = folder.path() / "checkpoints";
  std::string said;
  try {
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      TrainingRun run(spec, Device::cpu, checkpoints, {.ranks = group.get()});
      run.init_weights();
      group->barrier()->wait();
      if (group->rank() == 0) {
        fs::remove_all(checkpoints);
        std::ofstream(checkpoints) << "a file now";
      }
      group->barrier()->wait();
      Progress progress = beginning(run);
      Watcher silent;
      train(run, progress, silent);
    });
  } catch (const EnvironmentError& error) {
    said = error.what();
  }
  EXPECT_THAT(said,
              ::testing::StartsWith(
                  "rank 0: " + checkpoints.string() +
                  ": mkdir failed: Not a directory; remove the file that is in the way, or name another path; step 5"));
}

}  // namespace
}  // namespace lockstep::tests
