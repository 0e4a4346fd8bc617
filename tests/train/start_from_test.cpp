// A run that starts from another's checkpoint: its weights to the bit in any layout, and everything else anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "comm/threads/run_ranks.h"
#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const LayoutSpec kLayouts[] = {{},
                               {.dp = 3},
                               {.dp = 2, .micro = 2, .zero = 3},
                               {.dp = 2, .dp_kind = DpKind::central},
                               {.pp = 2, .micro = 2},
                               {.cp = 2},
                               {.tp = 2},
                               {.dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1}};

RunSpec first_run(const LayoutSpec& layout) {
  RunSpec run = resumed_run(cut_specs().back().spec, layout);
  run.data.seq = 12;
  run.train.global_batch = 12;
  run.precision.compute = Precision::fp64;
  return run;
}

// Other data, another seed, another optimizer's pace.
RunSpec next_run(const LayoutSpec& layout, const fs::path& from) {
  RunSpec run = first_run(layout);
  run.model_from = from.string();
  run.data.synthetic->seed = 99;
  run.train.seed = 77;
  run.train.save_every = 0;
  run.train.save_last = false;
  return run;
}

TrainedState only_weights(TrainedState state) {
  std::erase_if(state, [](const auto& item) { return item.first.first != "weight"; });
  return state;
}

// What a run has before its first step, and that step's loss.
struct Start {
  TrainedState state;
  double loss = 0;
  std::string from, run_file;
};

Start start(const RunSpec& spec, const fs::path& folder, std::vector<std::string>* notes = nullptr) {
  Start result;
  RunSpec still = spec;
  still.train.steps = 0;
  result.state = train_all(still, folder);
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
    const bool first = run.is_first_rank();
    run.init_weights([&](const std::string& line) {
      if (notes) notes->push_back(line);
    });
    const Progress progress = beginning(run);
    EXPECT_EQ(progress.step + progress.updates + progress.samples, 0);
    EXPECT_EQ(progress.data_fingerprint, run.data().fingerprint());
    const double loss = run.step(0, 1e-3).loss;
    run.replica().settle();
    if (first) result.loss = loss, result.from = run.spec().model_from, result.run_file = progress.run_file;
  });
  return result;
}

class StartFrom : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    trained_ = new TrainedState(train_all(first_run({.dp = 2, .zero = 1}), folder_->path() / "checkpoints"));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete trained_;
  }
  static fs::path checkpoint(std::int64_t step) { return folder_->path() / "checkpoints" / step_folder_name(step); }

  static TemporaryFolder* folder_;  // a run folder, with steps kSavedStep and kAllSteps
  static TrainedState* trained_;    // its end
};
TemporaryFolder* StartFrom::folder_ = nullptr;
TrainedState* StartFrom::trained_ = nullptr;

TEST_F(StartFrom, WeightsAreTheCheckpointsToTheBitInEveryLayoutAndAllElseIsNew) {
  const TrainedState expected = only_weights(*trained_);
  double one = 0;
  for (const LayoutSpec& layout : kLayouts) {
    const std::string what = to_text(layout);
    const TemporaryFolder unused;
    const Start begun = start(next_run(layout, folder_->path()), unused.path());
    EXPECT_TRUE(only_weights(begun.state) == expected) << what;
    EXPECT_EQ(begun.state.size(), 3 * expected.size()) << what;
    for (const auto& [key, values] : begun.state) {
      if (key.first == "weight") continue;
      EXPECT_EQ(std::ranges::count(values, 0.0), std::ssize(values)) << what << ": " << key.first << key.second;
    }
    if (one == 0) one = begun.loss;
    EXPECT_NEAR(begun.loss / one, 1, 1e-11) << what;
    EXPECT_EQ(begun.from, checkpoint(kAllSteps).string()) << what << ": a rank that runs again takes the same one";
    EXPECT_THAT(begun.run_file, HasSubstr("from = \"" + begun.from + "\"")) << what;
  }
}

TEST_F(StartFrom, TheFirstLossIsThatOfTheseWeightsOnTheNewData) {
  const TemporaryFolder unused;
  const double loss = start(next_run({}, folder_->path()), unused.path()).loss;
  RunSpec same_data = next_run({}, folder_->path());
  same_data.data.synthetic = first_run({}).data.synthetic;
  EXPECT_GT(std::abs(start(same_data, unused.path()).loss - loss), 1e-3) << "other data, other loss";
  RunSpec fresh = next_run({}, "");
  EXPECT_GT(std::abs(start(fresh, unused.path()).loss - loss), 1e-3) << "other weights, other loss";

  // The checkpoint's weights, put there by hand.
  TrainingRun run(fresh, Device::cpu, unused.path());
  std::vector<StateTensor> weights = run.replica().state();
  std::erase_if(weights, [](const StateTensor& t) { return t.part != kWeightPart; });
  open_checkpoint(checkpoint(kAllSteps)).load(weights, run.stream());
  run.replica().resume(0, 0);
  EXPECT_EQ(run.step(0, 1e-3).loss, loss);
}

TEST_F(StartFrom, AFolderOfCheckpointsOrOneOfThemMayBeNamed) {
  const TemporaryFolder unused;
  EXPECT_EQ(start(next_run({.dp = 2}, folder_->path() / "checkpoints"), unused.path()).from,
            checkpoint(kAllSteps).string());
  const Start older = start(next_run({.dp = 2}, checkpoint(kSavedStep)), unused.path());
  EXPECT_EQ(older.from, checkpoint(kSavedStep).string());
  EXPECT_FALSE(only_weights(older.state) == only_weights(*trained_));
}

TEST_F(StartFrom, ADamagedCheckpointIsPassedOverAndNamed) {
  const TemporaryFolder copy, unused;
  fs::copy(folder_->path(), copy.path(), fs::copy_options::recursive);
  const auto damage = [&](std::int64_t step) {
    for (const auto& file : fs::directory_iterator(copy.path() / "checkpoints" / step_folder_name(step)))
      if (file.path().extension() == ".safetensors") std::ofstream(file.path(), std::ios::app) << "x";
  };
  damage(kAllSteps);
  std::vector<std::string> notes;
  const Start begun = start(next_run({.dp = 2}, copy.path()), unused.path(), &notes);
  EXPECT_EQ(begun.from, (copy.path() / "checkpoints" / step_folder_name(kSavedStep)).string());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("skipping " + (copy / "checkpoints/step-00000004")));
  damage(kSavedStep);
  try {
    start(next_run({}, copy.path()), unused.path());
    ADD_FAILURE() << "nothing there is whole";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
  }
}

TEST_F(StartFrom, AnotherModelThanTheRunFilesIsRefused) {
  const TemporaryFolder unused;
  RunSpec other = next_run({}, folder_->path());
  other.model.norm_eps *= 2;
  try {
    start(other, unused.path());
    ADD_FAILURE() << "another model";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("its model has norm_eps = "));
  }
  other = next_run({}, folder_->path());
  other.model.dropout = 0.25;
  EXPECT_TRUE(only_weights(start(other, unused.path()).state) == only_weights(*trained_)) << "dropout may differ";
}

// The old run is needed once.
TEST_F(StartFrom, IsResumedWithoutTheRunItStartedFrom) {
  const TemporaryFolder old, saved, unused;
  fs::copy(folder_->path(), old.path(), fs::copy_options::recursive);
  RunSpec next = next_run({.dp = 2}, old.path());
  next.train.save_every = kSavedStep;
  const TrainedState whole = train_all(next, saved.path());
  fs::remove_all(old.path() / "checkpoints");
  const Checkpoint middle = open_checkpoint(saved.path() / step_folder_name(kSavedStep));
  const RunSpec again = parse_run_toml(middle.progress().run_file, "run.toml", "/");
  EXPECT_EQ(again.model, next.model);
  EXPECT_TRUE(train_all(again, unused.path(), middle.path()) == whole);
}

}  // namespace
}  // namespace lockstep::tests
