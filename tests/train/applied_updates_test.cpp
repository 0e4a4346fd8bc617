// What a run's steps do to the weights: the optimizer's formula, worked out here for every element, at the rate that is
// logged, with the clipping that the logged norm asks for.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSpoiled = 4;  // the step that sees a bad weight

// One logical tensor as the formulas have it.
struct Parameter {
  std::vector<double> weight, first, second;
};

class Formulas final : public Watcher {
 public:
  explicit Formulas(TrainingRun& run) : run_(run) {
    for (const auto& t : run.replica().tensors()) {
      const std::vector<double> weight = to_doubles(t.master, run.stream());
      plain_[t.tensor.name] = {weight, std::vector<double>(weight.size()), std::vector<double>(weight.size())};
    }
  }

  void stepped(const StepRecord& record) override {
    const OptimizerSpec& o = run_.spec().optimizer;
    ASSERT_EQ(record.step, ++steps_);
    EXPECT_EQ(record.updated, record.step != kSpoiled);
    if (record.updated) ++updates_;
    rates.push_back(record.lr);
    const auto tensors = run_.replica().tensors();
    double squares = 0;
    for (const auto& t : tensors)
      for (const double g : to_doubles(t.gradient, run_.stream())) squares += g * g;
    if (record.updated) {
      EXPECT_NEAR(record.grad_norm, std::sqrt(squares), 1e-12 * record.grad_norm);
      clipped_ += o.clip > 0 && record.grad_norm > o.clip;
    }
    const double scale = o.clip > 0 ? std::min(1.0, o.clip / (record.grad_norm + 1e-6)) : 1.0;
    for (const auto& t : tensors) {
      const std::vector<double> gradient = to_doubles(t.gradient, run_.stream()),
                                now = to_doubles(t.master, run_.stream());
      Parameter& p = plain_.at(t.tensor.name);
      const double decay = t.tensor.shape.size() >= 2 ? o.weight_decay : 0;
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (record.updated) move(p, i, scale * gradient[i], decay, record.lr);
        if (record.step == kSpoiled && &t == &tensors.front() && i == 0) continue;  // the bad one
        ASSERT_NEAR(now[i], p.weight[i], 1e-13 * (1 + std::abs(p.weight[i])))
            << t.tensor.name << " element " << i << " after step " << record.step;
      }
    }
    double* weight = tensors.front().master.data<double>();
    if (record.step + 1 == kSpoiled) weight[0] = std::numeric_limits<double>::infinity();
    if (record.step == kSpoiled) weight[0] = plain_.at(tensors.front().tensor.name).weight[0];
  }

  std::vector<double> rates;
  int clipped() const { return clipped_; }

 private:
  void move(Parameter& p, std::size_t i, double gradient, double decay, double rate) const {
    const OptimizerSpec& o = run_.spec().optimizer;
    double& w = p.weight[i];
    if (o.kind == OptimizerKind::sgd) {
      const double pulled = gradient + decay * w;
      p.first[i] = o.momentum * p.first[i] + pulled;
      w -= rate * p.first[i];
      return;
    }
    const auto t = static_cast<double>(updates_);  // of updates, not of steps
    p.first[i] = o.beta1 * p.first[i] + (1 - o.beta1) * gradient;
    p.second[i] = o.beta2 * p.second[i] + (1 - o.beta2) * gradient * gradient;
    const double mean = p.first[i] / (1 - std::pow(o.beta1, t)), square = p.second[i] / (1 - std::pow(o.beta2, t));
    w -= rate * decay * w;
    w -= rate * mean / (std::sqrt(square) + o.eps);
  }

  TrainingRun& run_;
  std::map<std::string, Parameter> plain_;
  std::int64_t steps_ = 0, updates_ = 0;
  int clipped_ = 0;
};

class AppliedUpdates : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(AppliedUpdates, AreTheFormulasAtTheLoggedRate) {
  constexpr std::int64_t kSteps = 7, kWarmup = 3;
  for (const OptimizerSpec optimizer :
       {OptimizerSpec{.kind = OptimizerKind::sgd, .learning_rate = 0.05, .momentum = 0, .weight_decay = 0, .clip = 0},
        {.kind = OptimizerKind::sgd, .learning_rate = 0.05, .momentum = 0, .weight_decay = 0.3, .clip = 0},
        {.kind = OptimizerKind::sgd, .learning_rate = 0.05, .momentum = 0.8, .weight_decay = 0.3, .clip = 0.02},
        {.kind = OptimizerKind::adamw, .learning_rate = 0.02, .weight_decay = 0, .clip = 0},
        {.kind = OptimizerKind::adamw, .learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.97, .eps = 1e-4, .clip = 0.02},
        {.kind = OptimizerKind::adamw, .learning_rate = 0.02, .weight_decay = 0.3, .clip = 1e6}}) {
    RunSpec spec;
    spec.model = GetParam().spec;
    spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
    spec.data.seq = 6;
    spec.train = {.steps = kSteps, .global_batch = 4, .bad_values = BadValues::skip, .save_last = false};
    spec.optimizer = optimizer;
    spec.schedule = {.kind = RateKind::linear, .warmup = kWarmup, .final = 0.25};
    spec.precision = Precision::fp64;
    spec.layout.micro = 2;
    spec.run.threads = 1;
    TemporaryFolder folder;
    TrainingRun run(spec, Device::cpu, folder.path());
    run.init_weights();
    for (const auto& t : run.replica().tensors())  // biases that are zero have nothing to decay
      if (t.tensor.shape.size() == 1)
        for (std::int64_t i = 0; i < t.tensor.elements(); ++i) t.master.data<double>()[i] += 0.5;
    Formulas formulas(run);
    Progress progress = beginning(run);
    EXPECT_EQ(train(run, progress, formulas), Ending::finished);
    EXPECT_EQ(progress.step, kSteps);
    EXPECT_EQ(progress.updates, kSteps - 1);
    const double peak = optimizer.learning_rate;
    const std::vector<double> rates{peak / 3,       peak * 2 / 3,  peak,    peak * 13 / 16,
                                    peak * 10 / 16, peak * 7 / 16, peak / 4};
    for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(formulas.rates.at(i), rates[i], 1e-15) << i;
    EXPECT_EQ(formulas.clipped() > 0, optimizer.clip == 0.02) << "where it is to clip, it does";
  }
}

std::vector<NamedSpec> with_vectors() {  // norms, biases, a table of positions; tied and not
  std::vector<NamedSpec> chosen;
  for (const NamedSpec& named : tiny_specs())
    if (named.name == "llama_biases" || named.name == "llama_tied_scaled" || named.name == "gpt2")
      chosen.push_back(named);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Of, AppliedUpdates, ::testing::ValuesIn(with_vectors()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
