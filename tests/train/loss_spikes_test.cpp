// A batch that makes the loss jump is left out as if it had never been in the data: to the bit, on every layout, and
// also when the run is interrupted.
#include "train/loss_spikes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/state_copy.h"
#include "comm/threads/run_ranks.h"
#include "data/sampler.h"
#include "data/token_file_writer.h"
#include "data/windowed_dataset.h"
#include "optim/learning_rate.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kBatch = 6, kSeq = 8, kWindows = 900, kSteps = 60, kBad = 45;  // the step's number less one

struct Trained {
  std::vector<double> losses;       // as recorded, by step
  std::vector<std::int64_t> steps;  // that were recorded
  std::vector<std::vector<std::byte>> state;
  bool operator==(const Trained&) const = default;
};

class LossSpike : public ::testing::Test {
 protected:
  LossSpike() { write({kBad}); }

  // A row of tokens that is soon learned, but for the samples of these steps' batches.
  void write(const std::vector<std::int64_t>& bad) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kWindows * kSeq + 1));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 5 % 7);
    const Sampler order(kWindows, random_key(0, "data order"));
    for (const std::int64_t step : bad)
      for (std::int64_t n = step * kBatch; n < (step + 1) * kBatch; ++n)
        for (std::int64_t i = 1; i < kSeq; ++i)
          tokens[static_cast<std::size_t>(order.sample_of(n) * kSeq + i)] =
              static_cast<std::int32_t>(20 + (n + i * i) % 17);
    TokenFileWriter file(folder_ / "data.tokens", 37);
    file.add(tokens);
    file.finish();
  }

  RunSpec spec(const LayoutSpec& layout = {}) const {
    RunSpec spec;
    spec.model = tiny_specs().front().spec;
    spec.model.heads = 4, spec.model.kv_heads = 2, spec.model.head_width = 6;
    spec.data.tokens = folder_ / "data.tokens";
    spec.data.seq = kSeq;
    spec.data.eval_share = 0;
    spec.train = {.steps = kSteps, .global_batch = kBatch, .save_every = 20, .keep = 100};
    spec.train.loss_spikes = LossSpikes::rewind;
    spec.train.spike_z = 2.5;
    spec.optimizer.learning_rate = 3e-3;
    spec.layout = layout;
    spec.run.threads = 1;
    return spec;
  }

  static std::vector<std::byte> state_of(TrainingRun& run) {
    std::vector<std::byte> all;
    for (const StateTensor& t : run.replica().state()) {
      const std::size_t at = all.size();
      all.resize(at + static_cast<std::size_t>(t.live.bytes()));
      download(all.data() + at, t.live, run.stream());
    }
    return all;
  }

  // The same steps by hand, on batches that do not include the bad ones.
  Trained without(const RunSpec& spec, const std::vector<std::int64_t>& left_out) const {
    Trained trained;
    trained.state.resize(static_cast<std::size_t>(spec.layout.ranks()));
    run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      RunSpec alike = spec;
      alike.train.save_every = 0;
      alike.train.save_last = false;
      TrainingRun run(alike, Device::cpu, {}, {.ranks = group->size() > 1 ? group.get() : nullptr});
      run.init_weights();
      std::vector<double> losses;
      for (std::int64_t step = 0, batch = 0; step < kSteps; ++step, ++batch) {
        while (std::ranges::find(left_out, batch) != left_out.end()) ++batch;
        const double rate = learning_rate(alike.schedule, alike.optimizer.learning_rate, step, kSteps);
        losses.push_back(run.step(batch * kBatch, rate).loss);
      }
      run.replica().settle();
      trained.state[static_cast<std::size_t>(group->rank())] = state_of(run);
      if (group->rank() > 0) return;
      trained.losses = losses;
      for (std::int64_t step = 1; step <= kSteps; ++step) trained.steps.push_back(step);
    });
    return trained;
  }

  struct Heard final : Watcher {
    std::vector<std::string> notes;
    std::vector<LoggedEvent> rewinds;
    std::vector<std::int64_t> steps, skipped;
    std::vector<double> losses;
    std::int64_t stop_after = -1, throw_after = -1;
    void stepped(const StepRecord& r) override {
      steps.push_back(r.step);
      losses.push_back(r.loss);
      skipped.push_back(r.skipped.value_or(-1));
      if (r.step == throw_after) throw std::runtime_error("killed");
    }
    void happened(const LoggedEvent& event) override {
      if (event.kind == EventKind::rewind) rewinds.push_back(event);
    }
    void note(const std::string& line) override { notes.push_back(line); }
    bool wants_stop() override { return !steps.empty() && steps.back() == stop_after; }
  };

  // From the folder's newest checkpoint, if there is one.
  Trained train_on(const RunSpec& spec, Heard& heard, const std::string& name = "checkpoints") const {
    Trained trained;
    trained.state.resize(static_cast<std::size_t>(spec.layout.ranks()));
    run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      const std::filesystem::path folder = folder_ / name;
      TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
      Progress progress = beginning(run);
      if (const auto found = find_own_checkpoint(folder))
        progress = resume(run, *found, [](const std::string&) {});
      else
        run.init_weights();
      Heard silent;
      silent.stop_after = heard.stop_after;
      silent.throw_after = heard.throw_after;
      const bool first = group->rank() == 0;
      try {
        train(run, progress, first ? heard : silent);
      } catch (const std::runtime_error& killed) {
        if (heard.throw_after < 0) throw;
      }
      trained.state[static_cast<std::size_t>(group->rank())] = state_of(run);
    });
    trained.losses = heard.losses;
    trained.steps = heard.steps;
    return trained;
  }

  TemporaryFolder folder_;
};

TEST_F(LossSpike, IsForgottenTogetherWithItsBatch) {
  Heard heard;
  const Trained trained = train_on(spec(), heard);
  EXPECT_EQ(trained, without(spec(), {kBad}));
  ASSERT_EQ(heard.rewinds.size(), 1u);
  EXPECT_EQ(heard.rewinds[0].step, kBad + 1);
  EXPECT_THAT(heard.rewinds[0].text, HasSubstr(fmt::format("back to step 40, and samples {} to {} are left out",
                                                           kBad * kBatch, (kBad + 1) * kBatch - 1)));
  EXPECT_EQ(heard.skipped[kBad - 1], 0);
  EXPECT_EQ(heard.skipped[kBad], 1);
  const Progress end = find_own_checkpoint(folder_ / "checkpoints")->progress();
  EXPECT_EQ(end.samples, (kSteps + 1) * kBatch);
  ASSERT_TRUE(end.spikes);
  EXPECT_THAT(end.spikes->skipped, ElementsAre(kBad * kBatch));
}

TEST_F(LossSpike, BeforeTheFirstSaveGoesBackToTheBeginning) {
  RunSpec rare = spec();
  rare.train.save_every = 1000;
  Heard heard;
  EXPECT_EQ(train_on(rare, heard), without(rare, {kBad}));
  ASSERT_EQ(heard.rewinds.size(), 1u);
  EXPECT_THAT(heard.rewinds[0].text, HasSubstr("back to step 0"));
}

// A copy in memory of a step that is undone would be the newest state there is.
TEST_F(LossSpike, LeavesNoCopyOfAStepThatIsUndone) {
  struct Copies final : Watcher {
    std::filesystem::path folder;
    std::optional<std::vector<std::int64_t>> after;
    void note(const std::string& line) override {
      if (line.find("are left out") != std::string::npos) after = complete_copies(folder);
    }
  } watcher;
  watcher.folder = folder_ / "copies";
  std::filesystem::create_directory(watcher.folder);
  RunSpec copied = spec();
  copied.train.copy_every = 1;
  TrainingRun run(copied, Device::cpu, folder_ / "checkpoints");
  Progress progress = beginning(run);
  run.init_weights();
  train(run, progress, watcher, {.copies = CopyPlace{.folder = watcher.folder, .room = std::int64_t{1} << 30}});
  ASSERT_TRUE(watcher.after) << "nothing was undone";
  EXPECT_THAT(*watcher.after, IsEmpty());
  EXPECT_THAT(complete_copies(watcher.folder), testing::Not(IsEmpty())) << "no copies were made";
}

TEST_F(LossSpike, IsForgottenOnEveryLayout) {
  const LayoutSpec layouts[] = {{.dp = 3},
                                {.dp = 3, .zero = 3, .grad_sync = GradSync::micro},
                                {.tp = 2, .sp = Switch::on},
                                {.pp = 2, .micro = 3},
                                {.dp = 3, .dp_kind = DpKind::central}};
  for (std::size_t i = 0; i < std::size(layouts); ++i) {
    Heard heard;
    EXPECT_EQ(train_on(spec(layouts[i]), heard, fmt::format("layout{}", i)), without(spec(layouts[i]), {kBad})) << i;
    EXPECT_EQ(heard.rewinds.size(), 1u) << i;
  }
}

// A run that is stopped after the rewind keeps what was left out; one that is killed before it saves decides again.
TEST_F(LossSpike, IsDecidedAlikeByARunThatIsInterrupted) {
  const Trained whole = without(spec(), {kBad});
  for (const bool killed : {false, true})
    for (const std::int64_t after : {kBad, kBad + 2}) {
      const std::string name = fmt::format("{}{}", killed, after);
      Heard first, second;
      (killed ? first.throw_after : first.stop_after) = after;
      RunSpec quiet = spec();
      if (killed) quiet.train.save_last = false;
      train_on(quiet, first, name);
      const Trained trained = train_on(spec(), second, name);
      EXPECT_EQ(trained.state, whole.state) << name;
      EXPECT_EQ(trained.losses,
                std::vector<double>(whole.losses.end() - std::ssize(trained.losses), whole.losses.end()));
      EXPECT_EQ(trained.steps.front(), killed ? 41 : after + 1) << name;
      EXPECT_EQ(second.rewinds.empty(), !killed && after > kBad) << name;
    }
}

TEST_F(LossSpike, AreIgnoredBeyondTheBound) {
  write({kBad, kBad + 8});
  RunSpec once = spec();
  once.train.most_rewinds = 1;
  Heard heard;
  EXPECT_EQ(train_on(once, heard), without(once, {kBad}));
  EXPECT_EQ(heard.rewinds.size(), 1u);
  EXPECT_THAT(heard.notes, ::testing::Contains(HasSubstr("its batch stays: train.most_rewinds = 1 were made")));
  Heard twice;
  EXPECT_EQ(train_on(spec(), twice, "twice"), without(spec(), {kBad, kBad + 8}));
  EXPECT_EQ(twice.rewinds.size(), 2u);
}

TEST_F(LossSpike, IsLeftAloneUnlessAsked) {
  RunSpec ignores = spec();
  ignores.train.loss_spikes = LossSpikes::ignore;
  Heard heard;
  EXPECT_EQ(train_on(ignores, heard), without(ignores, {}));
  EXPECT_THAT(heard.rewinds, IsEmpty());
  EXPECT_EQ(heard.skipped[kBad], -1);
  EXPECT_FALSE(find_own_checkpoint(folder_ / "checkpoints")->progress().spikes);
}

}  // namespace
}  // namespace lockstep::tests
