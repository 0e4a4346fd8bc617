// Cutting a batch into micro-batches changes memory, never what is learned; neither does the order of the actions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

class MicroBatches : public ::testing::TestWithParam<NamedSpec> {};

Replica::Options micro_batch_options(const ModelSpec& spec, int micro, Precision precision = Precision::fp64) {
  return {.spec = spec, .B = 6, .T = 7, .layout = {.micro = micro}, .precision = precision, .seed = 3};
}

std::vector<double> gradients_of(HostRun& run) {
  std::vector<double> all;
  for (const auto& t : run.replica->tensors()) {
    const double* p = t.gradient.data<double>();
    all.insert(all.end(), p, p + t.gradient.elements());
  }
  return all;
}

TEST_P(MicroBatches, GiveTheGradientOfTheWholeBatch) {
  const auto o = micro_batch_options(GetParam().spec, 1);
  const TokenBatch batch = random_batch(o, 5);  // some targets do not count, and not the same number in each part
  HostRun whole(o);
  whole.replica->init_weights();
  const double loss = whole.replica->compute_gradients(batch.tokens, batch.targets);
  const std::vector<double> expected = gradients_of(whole);
  double norm = 0;
  for (const double g : expected) norm += g * g;
  for (const int micro : {2, 3, 6}) {
    HostRun cut(micro_batch_options(GetParam().spec, micro));
    cut.replica->init_weights();
    EXPECT_NEAR(cut.replica->compute_gradients(batch.tokens, batch.targets), loss, 1e-13 * loss) << micro;
    const std::vector<double> got = gradients_of(cut);
    double error = 0;
    for (std::size_t i = 0; i < got.size(); ++i) error += (got[i] - expected[i]) * (got[i] - expected[i]);
    EXPECT_LE(std::sqrt(error), 1e-13 * std::sqrt(norm)) << micro;
    EXPECT_LT(cut.ledger.peak(Tag::activation), whole.ledger.peak(Tag::activation)) << micro;
  }
}

// All forwards, then all backwards, then the weights: every micro-batch in flight at once.
std::vector<Action> all_in_flight(const StepShape& shape) {
  std::vector<Action> list;
  // They begin in any order but at the last unit, whose forward adds to gradients.
  for (int m = shape.micro - 1; m >= 0; --m)
    for (int u = 0; u + 1 < shape.units; ++u) list.push_back({ActionKind::forward, u, m});
  for (int m = 0; m < shape.micro; ++m) list.push_back({ActionKind::forward, shape.units - 1, m});
  for (int m = shape.micro - 1; m >= 0; --m)
    for (int u = shape.units - 1; u >= 0; --u) list.push_back({ActionKind::backward_input, u, m});
  for (int u = 0; u < shape.units; ++u)
    for (int m = 0; m < shape.micro; ++m) list.push_back({ActionKind::backward_weight, u, m});
  for (int u = 0; u < shape.units; ++u) list.push_back({ActionKind::reduce, u});
  list.push_back({ActionKind::norm});
  for (int u = shape.units - 1; u >= 0; --u) list.push_back({ActionKind::update, u});
  return list;
}

TEST_P(MicroBatches, LearnTheSameBitsInAnyOrderOfActions) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Replica::Options o = micro_batch_options(GetParam().spec, 3, precision);
    HostRun serial(o);
    o.actions = all_in_flight(serial.replica->model().step_shape(3));
    HostRun flying(o);
    for (HostRun* run : {&serial, &flying}) {
      run->replica->init_weights();
      for (unsigned step = 0; step < 3; ++step) {
        const TokenBatch batch = random_batch(o, step);
        run->replica->step(batch.tokens, batch.targets);
      }
    }
    EXPECT_EQ(weight_bytes(flying), weight_bytes(serial)) << name_of(precision);
    EXPECT_GT(flying.ledger.peak(Tag::activation), 2 * serial.ledger.peak(Tag::activation));
  }
}

TEST_P(MicroBatches, EvaluateToTheSameLogits) {
  HostRun whole(micro_batch_options(GetParam().spec, 1)), cut(micro_batch_options(GetParam().spec, 3));
  const TokenBatch batch = random_batch(micro_batch_options(GetParam().spec, 1), 5);
  std::vector<double> a(batch.tokens.size() * GetParam().spec.vocabulary), b(a.size());
  whole.replica->init_weights();
  cut.replica->init_weights();
  const double loss = whole.replica->evaluate(batch.tokens, batch.targets, a);
  EXPECT_EQ(cut.replica->evaluate(batch.tokens, batch.targets, b), loss);
  EXPECT_EQ(a, b);
}

TEST_P(MicroBatches, AreCountedByMetaAsTheyAre) {
  for (const int micro : {1, 2, 6}) {
    Replica::Options o = micro_batch_options(GetParam().spec, micro, Precision::bf16);
    for (const bool flying : {false, true}) {
      if (flying) o.actions = all_in_flight(Model(o.spec, 1, o.T, DType::bf16).step_shape(micro));
      HostRun real(o);
      const TokenBatch batch = random_batch(o, 1);
      real.replica->init_weights();
      real.replica->step(batch.tokens, batch.targets);
      const std::int64_t settled = real.ledger.allocations();
      real.replica->step(batch.tokens, batch.targets);
      EXPECT_EQ(real.ledger.allocations(), settled);

      Ledger ledger;
      const auto memory = make_memory(Device::meta, ledger);
      meta::Stream stream(*memory, cpu::kScratchBytes);
      Replica counted(o, *memory, stream);
      counted.init_weights();
      counted.step(batch.tokens, batch.targets);
      EXPECT_EQ(ledger.rows(), real.ledger.rows());
      EXPECT_EQ(ledger.peak(), real.ledger.peak());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, MicroBatches, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(BadValues, TheFirstBadTensorIsNamed) {
  const auto o = micro_batch_options(tiny_specs()[0].spec, 2, Precision::fp32);
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 1);
  EXPECT_EQ(run.replica->find_bad_value(batch.tokens, batch.targets), std::nullopt);

  const auto tensors = run.replica->tensors();
  const auto named = [&](const std::string& name) {
    for (const auto& t : tensors)
      if (t.tensor.name == name) return t.master.data<float>();
    throw std::logic_error(name);
  };
  // Finite weights whose product is not: the first thing to overflow is what the projection gives.
  float* gate = named("model.layers.1.mlp.gate_proj.weight");
  const float kept = gate[0];
  gate[0] = 3e38f;
  float* norm = named("model.layers.1.post_attention_layernorm.weight");
  norm[0] = 1e30f;
  run.replica->step(batch.tokens, batch.targets);
  const auto found = run.replica->find_bad_value(batch.tokens, batch.targets);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("activation 'inner' of block.1 after forward(2, 0)"), std::string::npos) << *found;
  gate[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(run.replica->find_bad_value(batch.tokens, batch.targets),
            "the weight model.layers.1.mlp.gate_proj.weight (element 0 is inf)");
  gate[0] = kept;
}

}  // namespace
}  // namespace lockstep::tests
