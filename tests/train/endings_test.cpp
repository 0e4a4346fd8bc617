// However a run ends, what is good is saved, and what is not is never saved in its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "base/philox.h"
#include "comm/threads/run_ranks.h"
#include "data/sampler.h"
#include "data/token_file_writer.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kSampleTokens = 8, kFileSamples = 60;

RunSpec run_of_eight_steps(int ranks = 1) {
  RunSpec spec;
  spec.model = tiny_specs().front().spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = kSampleTokens;
  spec.train = {.steps = 8, .global_batch = 6, .keep = 100};
  spec.layout.dp = ranks;
  spec.run.threads = 1;
  return spec;
}

struct ToldNotes final : Watcher {
  std::string notes, reason;
  std::vector<std::int64_t> saves;
  std::function<void(std::int64_t step)> after = [](std::int64_t) {};
  void stepped(const StepRecord& r) override { after(r.step); }
  void note(const std::string& line) override { notes += line + "\n"; }
  void saved(std::int64_t step) override { saves.push_back(step); }
  void ended_by(const std::string& why) override { reason = why; }
};

// A token file one of whose ids is none of the vocabulary: it opens, since ids are looked at when they are read.
std::string damaged_tokens(const TemporaryFolder& folder, std::int64_t sample) {
  const std::string file = folder / "damaged.tokens";
  TokenFileWriter writer(file, 16);
  std::vector<std::int32_t> ids(kFileSamples * kSampleTokens + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 13);
  writer.add(ids);
  writer.finish();
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(64 + sample * kSampleTokens + 3);
  bytes.put(static_cast<char>(99));
  return file;
}

// The window that the n-th sample of the run is.
std::int64_t window_of(std::int64_t n, std::int64_t windows) {
  return Sampler(windows, random_key(0, "data order")).sample_of(n);
}

// What each rank threw, by kind and words; and which steps are on the disk.
struct Ended {
  std::vector<std::string> words;
  std::vector<std::int64_t> steps;
  std::int64_t saved_samples = 0;
};
Ended train_with(const RunSpec& spec) {
  const TemporaryFolder folder;
  const int count = static_cast<int>(spec.layout.ranks());
  Ended ended;
  ended.words.resize(static_cast<std::size_t>(count));
  run_ranks(count, [&](std::unique_ptr<Communicator> ranks) {
    TrainingRun run(spec, Device::cpu, folder.path(), {.ranks = count > 1 ? ranks.get() : nullptr});
    run.init_weights();
    Progress progress = beginning(run);
    Watcher silent;
    std::string& words = ended.words[static_cast<std::size_t>(ranks->rank())];
    try {
      train(run, progress, silent);
    } catch (const UserError& error) {
      words = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    } catch (const CommError& error) {
      words = fmt::format("{} {}", error.secondary() ? "secondary" : "primary", error.what());
    }
  });
  ended.steps = steps_in(folder.path());
  if (const auto newest = open_newest_whole(folder.path())) ended.saved_samples = newest->progress().samples;
  return ended;
}

TEST(Endings, DataThatCannotBeReadEndsTheRunAfterASave) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder folder;
    RunSpec spec = run_of_eight_steps(ranks);
    spec.data.synthetic.reset();
    spec.data.eval_share = 0;
    // Of step 5 (the fifth, from 1 on) the fourth sample: of three ranks, rank 1's.
    spec.data.tokens = damaged_tokens(folder, window_of(4 * 6 + 3, kFileSamples));
    const Ended ended = train_with(spec);
    EXPECT_EQ(ended.steps, std::vector<std::int64_t>{4});
    EXPECT_EQ(ended.saved_samples, 24);
    const int bad = ranks == 1 ? 0 : 1;
    const auto said = AllOf(HasSubstr("has id 99, but the vocabulary is 16"),
                            HasSubstr("after step 4: the newest checkpoint is of step 4"));
    for (int r = 0; r < ranks; ++r)
      EXPECT_THAT(ended.words[static_cast<std::size_t>(r)],
                  AllOf(said, HasSubstr(r == bad ? "4 " : "secondary rank 1: ")));
  }
}

TEST(Endings, EvaluationDataThatCannotBeReadEndsTheRunAfterASave) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder folder;
    RunSpec spec = run_of_eight_steps(ranks);
    spec.data.synthetic.reset();
    spec.data.eval_share = 0.2;  // the last twelve
    spec.train.eval_every = 3;
    spec.train.eval_batches = 2;
    spec.data.tokens = damaged_tokens(folder, 48 + 6 + 4);  // of the second batch the fifth: of three ranks, rank 2's
    const Ended ended = train_with(spec);
    EXPECT_EQ(ended.steps, std::vector<std::int64_t>{3});
    for (int r = 0; r < ranks; ++r)
      EXPECT_THAT(ended.words[static_cast<std::size_t>(r)],
                  AllOf(HasSubstr("has id 99"), HasSubstr(r == ranks - 1 ? "4 " : "secondary rank 2: ")));
  }
}

TEST(Endings, WeightsThatAreNotFiniteAreNotSavedInThePlaceOfGoodOnes) {
  for (const BadValues rule : {BadValues::stop, BadValues::skip}) {
    for (const bool async : {true, false}) {
      const TemporaryFolder folder;
      RunSpec spec = run_of_eight_steps();
      spec.train.bad_values = rule;
      spec.train.save_every = 2;
      spec.train.keep = 1;
      spec.train.async_save = async;
      TrainingRun run(spec, Device::cpu, folder.path());
      run.init_weights();
      ToldNotes told;
      told.after = [&](std::int64_t step) {  // as an update that overflows does: before the save of this step
        if (step == 4) run.replica().tensors()[1].master.data<float>()[7] = std::numeric_limits<float>::infinity();
      };
      Progress progress = beginning(run);
      EXPECT_EQ(train(run, progress, told), Ending::bad_values);
      EXPECT_EQ(told.saves, std::vector<std::int64_t>{2});
      EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{2}) << "the good one is not pruned for it";
      EXPECT_THAT(told.notes, AllOf(HasSubstr("step 4: checkpoint not saved: the weight "),
                                    HasSubstr(" is not finite (element "), HasSubstr("older checkpoints stay")));
      EXPECT_THAT(told.reason, AllOf(HasSubstr("the first was the weight "), HasSubstr("are not saved"),
                                     HasSubstr("the newest checkpoint is of step 2")));
      EXPECT_EQ(progress.step, rule == BadValues::stop ? 5 : 8);
    }
  }
}

TEST(Endings, ABadValueOfAStepLeavesTheWeightsBeforeItSaved) {
  const TemporaryFolder folder;
  RunSpec spec = run_of_eight_steps();
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  ToldNotes told;
  told.after = [&](std::int64_t step) {  // finite, and too large to compute with
    if (step == 3)
      for (float& w : std::span(run.replica().tensors()[2].master.data<float>(), 4)) w = 3e38f;
  };
  Progress progress = beginning(run);
  EXPECT_EQ(train(run, progress, told), Ending::bad_values);
  EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{4});
  EXPECT_THAT(told.reason, AllOf(HasSubstr("step 4: a value is not finite, nothing was updated; the first was "),
                                 HasSubstr("the newest checkpoint is of step 4")));
}

// As many steps as there are, and no step after the wish: also of one that comes before the first.
TEST(Endings, AWishToStopIsHeardBeforeTheFirstStep) {
  const TemporaryFolder folder;
  struct Stop final : Watcher {
    bool wants_stop() override { return true; }
  } stop;
  TrainingRun run(run_of_eight_steps(), Device::cpu, folder.path());
  run.init_weights();
  Progress progress = beginning(run);
  EXPECT_EQ(train(run, progress, stop), Ending::stopped);
  EXPECT_EQ(progress.step, 0);
  EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{0});
}

}  // namespace
}  // namespace lockstep::tests
