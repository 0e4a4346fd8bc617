// What evaluation says: the mean loss of the samples that were held back, and the share of their next tokens that were
// the likeliest, worked out by plain loops from the tokens of the file.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "comm/threads/run_ranks.h"
#include "data/token_file_writer.h"
#include "support/naive_model.h"
#include "support/program.h"
#include "support/recipes.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

class Evaluation : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSeq = 8, kWindows = 12, kHeld = 4;

  Evaluation() {
    // The first token of a sample is the last target of the one before. Every sample has a few tokens of its own.
    for (std::int64_t i = 0; i < kWindows * kSeq + 1; ++i) {
      const double where = uniform_number(3, i);
      tokens_.push_back(static_cast<std::int32_t>(i / kSeq * 2 + static_cast<std::int64_t>(where * 5)) % 37);
    }
    TokenFileWriter writer(folder_ / "some.tokens", 37);
    writer.add(tokens_);
    writer.finish();
  }

  RunSpec spec() const {
    RunSpec spec;
    spec.model = tiny_specs().back().spec;  // with dropout, of which evaluation has none
    spec.data.tokens = folder_ / "some.tokens";
    spec.data.seq = kSeq;
    spec.data.eval_share = 0.34;
    spec.train = {.steps = 5, .global_batch = 2, .eval_every = 2, .eval_batches = 2, .save_last = false};
    spec.optimizer.learning_rate = 0.02;
    spec.precision = Precision::fp64;
    spec.run.threads = 1;
    return spec;
  }

  // The logits of a sample of the file under the run's weights.
  Values logits_of(TrainingRun& run, std::int64_t window) const {
    std::map<std::string, Values> weights;
    for (const auto& t : run.replica().tensors()) weights[t.tensor.name] = to_doubles(t.master, run.stream());
    const auto begin = tokens_.begin() + window * kSeq;
    return naive_logits(run.spec().model, [&](const std::string& name) -> const Values& { return weights.at(name); },
                        {begin, begin + kSeq});
  }
  std::vector<std::int32_t> targets_of(std::int64_t window) const {
    const auto begin = tokens_.begin() + window * kSeq + 1;
    return {begin, begin + kSeq};
  }
  // The mean loss of a sample.
  double loss_of(TrainingRun& run, std::int64_t window) const {
    const Values losses = naive_losses(logits_of(run, window), targets_of(window));
    return std::accumulate(losses.begin(), losses.end(), 0.0) / kSeq;
  }
  // How many next tokens of a sample have no logit above their own.
  std::int64_t likeliest_of(TrainingRun& run, std::int64_t window) const {
    const Values logits = logits_of(run, window);
    const std::vector<std::int32_t> targets = targets_of(window);
    const std::int64_t V = run.spec().model.vocabulary;
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < kSeq; ++t) {
      const auto row = logits.begin() + t * V;
      count += std::none_of(row, row + V, [&](double v) { return v > row[targets[static_cast<std::size_t>(t)]]; });
    }
    return count;
  }
  // Of so many of those held back, beginning anew after the last.
  double mean_of(TrainingRun& run, std::int64_t samples) const {
    double total = 0;
    for (std::int64_t i = 0; i < samples; ++i) total += loss_of(run, kWindows - kHeld + i % kHeld);
    return total / static_cast<double>(samples);
  }

  TemporaryFolder folder_;
  std::vector<std::int32_t> tokens_;
};

TEST_F(Evaluation, IsTheMeanLossOfTheSamplesHeldBack) {
  for (const std::int64_t batches : {1, 2, 3}) {
    RunSpec spec = this->spec();
    spec.train.eval_batches = batches;
    TrainingRun run(spec, Device::cpu, folder_.path());
    run.init_weights();
    const double mean = run.evaluate().loss;
    EXPECT_NEAR(mean, mean_of(run, 2 * batches), 1e-12);
    EXPECT_EQ(run.evaluate().loss, mean) << "always the same samples";
    double trained = 0;
    for (std::int64_t w = 0; w < kWindows - kHeld; ++w) trained += loss_of(run, w) / (kWindows - kHeld);
    EXPECT_GT(std::abs(trained - mean), 1e-2) << "or the data says nothing";
    EXPECT_GT(std::abs(mean_of(run, 2) - mean_of(run, 4)), 1e-2) << "or the batches are alike";
  }
}

TEST_F(Evaluation, IsOfTheWeightsOfItsStep) {
  struct Records final : Watcher {
    std::vector<EvalRecord> all;
    std::vector<double> expected;
    std::function<double()> mean;
    void evaluated(const EvalRecord& record) override {
      all.push_back(record);
      expected.push_back(mean());
    }
  } records;
  TrainingRun run(spec(), Device::cpu, folder_.path());
  run.init_weights();
  records.mean = [&] { return mean_of(run, 4); };
  Progress progress = beginning(run);
  train(run, progress, records);
  ASSERT_EQ(records.all.size(), 3u);
  const std::int64_t steps[] = {2, 4, 5};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records.all[i].step, steps[i]);
    EXPECT_NEAR(records.all[i].loss, records.expected[i], 1e-12);
    if (i > 0) {
      EXPECT_NE(records.all[i].loss, records.all[i - 1].loss);
    }
  }
}

// Every other token is the same one, which a few steps learn, and the others are hard to guess.
class Accuracy : public Evaluation {
 protected:
  static constexpr std::int64_t kSteps = 6;
  Accuracy() {
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = i % 2 == 0 ? 5 : static_cast<std::int32_t>(37 * uniform_number(4, static_cast<std::int64_t>(i)));
    TokenFileWriter writer(folder_ / "learned.tokens", 37);
    writer.add(tokens_);
    writer.finish();
  }
  RunSpec spec() const {
    RunSpec spec = Evaluation::spec();
    spec.data.tokens = folder_ / "learned.tokens";
    return spec;
  }
  void train(TrainingRun& run) const {
    run.init_weights();
    for (std::int64_t step = 0; step < kSteps; ++step) run.step(2 * step, 0.02);
  }
};

TEST_F(Accuracy, IsTheShareOfNextTokensWithoutALargerLogit) {
  TrainingRun run(spec(), Device::cpu, folder_.path());
  train(run);
  std::int64_t likeliest = 0;
  for (std::int64_t w = kWindows - kHeld; w < kWindows; ++w) likeliest += likeliest_of(run, w);
  EXPECT_GT(likeliest, 0) << "or nothing was counted";
  EXPECT_LT(likeliest, kHeld * kSeq);
  EXPECT_EQ(run.evaluate().accuracy, static_cast<double>(likeliest) / (kHeld * kSeq));
  EXPECT_EQ(run.replica().evaluated().targets, 2 * kSeq) << "of its last batch";
}

TEST_F(Accuracy, IsTheSameWhateverTheLayout) {
  TrainingRun one(spec(), Device::cpu, folder_.path());
  train(one);
  const TrainingRun::Evaluation alone = one.evaluate();
  ASSERT_GT(alone.accuracy, 0);
  for (const LayoutSpec& layout : {LayoutSpec{.dp = 2},
                                   {.dp = 2, .dp_kind = DpKind::central},
                                   {.dp = 2, .zero = 3},
                                   {.pp = 2, .micro = 2},
                                   {.pp = 2, .schedule = ScheduleKind::zb_h1, .micro = 2},
                                   {.cp = 2},
                                   {.tp = 2},
                                   {.tp = 2, .sp = Switch::off}}) {
    RunSpec spec = this->spec();
    spec.layout = layout;
    run_ranks(2, [&](std::unique_ptr<Communicator> group) {
      TrainingRun run(spec, Device::cpu, folder_.path(), {.ranks = group.get()});
      train(run);
      const TrainingRun::Evaluation found = run.evaluate();
      EXPECT_NEAR(found.loss, alone.loss, 1e-11) << to_text(layout);
      EXPECT_EQ(found.accuracy, alone.accuracy) << to_text(layout);
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
