// A whole model of every family: what it computes, and that its gradients are the derivatives of its loss.
#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "support/host_run.h"
#include "support/naive_model.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

class EveryFamily : public ::testing::TestWithParam<NamedSpec> {
 protected:
  Replica::Options options() const {
    return {.spec = GetParam().spec, .B = 3, .T = 11, .precision = Precision::fp64, .optimizer = {}, .seed = 5};
  }
};

TEST_P(EveryFamily, ComputesTheLogitsOfThePlainLoops) {
  const Replica::Options o = options();
  HostRun run(o);
  run.replica->init_weights();
  std::map<std::string, Values> values;
  for (const auto& named : run.replica->tensors()) {
    double* p = named.master.data<double>();
    // Biases and norm weights start at 0 and 1, where a mistake could hide: move them.
    if (named.tensor.shape.size() == 1)
      for (std::int64_t i = 0; i < named.tensor.elements(); ++i)
        p[i] += 0.3 * std::sin(static_cast<double>(7 * i + named.tensor.name.size()));
    values[named.tensor.name] = Values(p, p + named.tensor.elements());
  }
  const TokenBatch batch = random_batch(o, 1);
  std::vector<double> logits(o.B * o.T * o.spec.vocabulary);
  run.replica->evaluate(batch.tokens, batch.targets, logits);
  for (std::int64_t b = 0; b < o.B; ++b) {
    const std::vector<int> tokens(batch.tokens.begin() + b * o.T, batch.tokens.begin() + (b + 1) * o.T);
    const Values expected = naive_logits(
        o.spec, [&](const std::string& name) -> const Values& { return values.at(name); }, tokens);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(logits[b * o.T * o.spec.vocabulary + i], expected[i], 1e-11) << "sample " << b << " place " << i;
  }
}

// However many there are in a sample or a micro-batch; and the gradients are that loss's, as the next test shows.
TEST_P(EveryFamily, TheLossIsTheMeanOverTheTargetsThatCount) {
  Replica::Options o = options();
  o.spec.dropout = o.spec.attention_dropout = 0;
  o.layout.micro = 3;
  HostRun run(o);
  run.replica->init_weights();
  std::map<std::string, Values> values;
  for (const auto& named : run.replica->tensors()) {
    const double* p = named.master.data<double>();
    values[named.tensor.name] = Values(p, p + named.tensor.elements());
  }
  TokenBatch batch = random_batch(o, 4);
  std::fill_n(batch.targets.begin(), 7, -1);                // most of the first sample
  std::fill_n(batch.targets.begin() + o.T, o.T, 5);         // none of the second
  std::fill_n(batch.targets.begin() + 2 * o.T + 3, 2, -1);  // a few of the third
  double total = 0, count = 0;
  for (std::int64_t b = 0; b < o.B; ++b) {
    const auto part = [&](const std::vector<std::int32_t>& all) {
      return std::vector<int>(all.begin() + b * o.T, all.begin() + (b + 1) * o.T);
    };
    const Values logits = naive_logits(
        o.spec, [&](const std::string& name) -> const Values& { return values.at(name); }, part(batch.tokens));
    for (const double loss : naive_losses(logits, part(batch.targets))) total += loss;
    for (const int target : part(batch.targets)) count += target >= 0;
  }
  ASSERT_LT(count, static_cast<double>(o.B * o.T) - 8);
  EXPECT_NEAR(run.replica->evaluate(batch.tokens, batch.targets), total / count, 1e-12);
  EXPECT_NEAR(run.replica->compute_gradients(batch.tokens, batch.targets), total / count, 1e-12);
}

TEST_P(EveryFamily, GradientsAreTheDerivativesOfTheLoss) {
  const Replica::Options o = options();
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 2);
  run.replica->compute_gradients(batch.tokens, batch.targets);
  const auto tensors = run.replica->tensors();
  double all = 0;
  std::vector<std::vector<double>> gradients;
  for (const auto& named : tensors) {
    const double* g = named.gradient.data<double>();
    gradients.emplace_back(g, g + named.tensor.elements());
    for (const double v : gradients.back()) all += v * v;
  }
  std::mt19937 random(3);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    double* p = tensors[t].master.data<double>();
    for (int trial = 0; trial < 6; ++trial) {
      const std::int64_t i = static_cast<std::int64_t>(random() % tensors[t].tensor.elements());
      const double kept = p[i], h = 1e-5;
      p[i] = kept + h;
      const double above = run.replica->compute_gradients(batch.tokens, batch.targets);
      p[i] = kept - h;
      const double below = run.replica->compute_gradients(batch.tokens, batch.targets);
      p[i] = kept;
      EXPECT_NEAR(gradients[t][i], (above - below) / (2 * h), 1e-8 * std::sqrt(all))
          << tensors[t].tensor.name << " element " << i;
    }
  }
}

TEST_P(EveryFamily, HoldsAsManyElementsAsItsSpecSays) {
  HostRun run(options());
  std::int64_t elements = 0;
  for (const auto& named : run.replica->tensors()) elements += named.tensor.elements();
  EXPECT_EQ(elements, parameter_count(GetParam().spec));
}

TEST_P(EveryFamily, GivesEqualBitsOnAnyNumberOfThreads) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16}) {
    Replica::Options o = options();
    o.precision = precision;
    std::vector<std::vector<char>> results;
    for (const int threads : {1, 2, 3}) {
      HostRun run(o, threads);
      run.replica->init_weights();
      for (unsigned step = 0; step < 3; ++step) {
        const TokenBatch batch = random_batch(o, step);
        run.replica->step(batch.tokens, batch.targets);
      }
      std::vector<char> bytes;
      for (const auto& named : run.replica->tensors()) {
        const char* p = static_cast<const char*>(named.master.raw());
        bytes.insert(bytes.end(), p, p + named.master.bytes());
      }
      results.push_back(std::move(bytes));
    }
    EXPECT_EQ(results[1], results[0]) << name_of(precision);
    EXPECT_EQ(results[2], results[0]) << name_of(precision);
  }
}

// Weight phases put off to the end of the step, as schedules without bubbles do: whatever a weight phase needs must
// outlive all input phases, and no bit may change.
TEST_P(EveryFamily, LearnsTheSameWhenWeightPhasesComeLate) {
  const Replica::Options o = options();
  Replica::Options late = o;
  const Model model(o.spec, o.B, o.T, DType::f64);
  late.actions = forward_pass(model.step_shape(1));
  for (int u = model.units() - 1; u >= 0; --u) late.actions.push_back({ActionKind::backward_input, u, 0});
  for (int u = 0; u < model.units(); ++u) late.actions.push_back({ActionKind::backward_weight, u, 0});
  for (int u = 0; u < model.units(); ++u) late.actions.push_back({ActionKind::reduce, u});
  late.actions.push_back({ActionKind::norm});
  for (int u = 0; u < model.units(); ++u) late.actions.push_back({ActionKind::update, u});
  HostRun plain(o), delayed(late);
  for (HostRun* run : {&plain, &delayed}) {
    run->replica->init_weights();
    for (unsigned step = 0; step < 3; ++step) {
      const TokenBatch batch = random_batch(o, step);
      run->replica->step(batch.tokens, batch.targets);
    }
  }
  EXPECT_GT(delayed.ledger.peak(Tag::activation), plain.ledger.peak(Tag::activation));
  const auto a = plain.replica->tensors(), b = delayed.replica->tensors();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].master.raw(), b[i].master.raw(), a[i].master.bytes()), 0) << a[i].tensor.name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryFamily, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(Model, RefusesMoreTokensThanItHasPositions) {
  EXPECT_THROW(Model(tiny_specs()[0].spec, 1, 65, DType::f32), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
