// The step of one rank: meta says before the run what the run then takes, nothing is allocated while training, and a
// bad value changes nothing.
#include "train/replica.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

class Twin : public ::testing::TestWithParam<std::tuple<NamedSpec, Precision>> {};

TEST_P(Twin, MetaTakesTheSameBytesAndNone) {
  const auto& [named, precision] = GetParam();
  for (const auto& [B, T] : {std::pair{1, 1}, std::pair{2, 17}, std::pair{3, 64}}) {
    const Replica::Options o{.spec = named.spec, .B = B, .T = T, .precision = precision};
    const TokenBatch batch = random_batch(o, 1);
    HostRun real(o);
    real.replica->init_weights();
    real.replica->step(batch.tokens, batch.targets);

    Ledger ledger;
    const auto memory = make_memory(Device::meta, ledger);
    const Buffer scratch = memory->allocate(cpu::kScratchBytes, Tag::workspace);
    meta::Stream stream;
    Replica counted(o, *memory, stream);
    counted.init_weights();
    counted.step(batch.tokens, batch.targets);
    EXPECT_EQ(ledger.rows(), real.ledger.rows());
    EXPECT_EQ(ledger.peak(), real.ledger.peak());
    EXPECT_GT(stream.work().matmul_flops, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Twin,
                         ::testing::Combine(::testing::ValuesIn(tiny_specs()),
                                            ::testing::Values(Precision::fp64, Precision::fp32, Precision::bf16,
                                                              Precision::fp16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name_of(std::get<1>(info.param)));
                         });

TEST(Replica, AllocatesNothingInTheSteadyState) {
  const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2, .T = 9};
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 1);
  run.replica->step(batch.tokens, batch.targets);
  const std::int64_t before = run.ledger.allocations();
  for (int i = 0; i < 5; ++i) run.replica->step(batch.tokens, batch.targets);
  EXPECT_EQ(run.ledger.allocations(), before);
}

TEST(Replica, GivesBackEveryByte) {
  Ledger ledger;
  {
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 2);
    Replica replica({.spec = tiny_specs()[0].spec, .B = 2, .T = 9}, *memory, stream);
    EXPECT_GT(ledger.current(), 0);
  }
  EXPECT_EQ(ledger.current(), 0);
  EXPECT_GT(ledger.peak(), 0);
}

// Matrix products of a step on meta: 6 FLOPs a parameter and token in the blocks and the head, and attention's own.
TEST(Replica, MetaCountsTheFlopsOfTheTextbook) {
  const ModelSpec spec = tiny_specs()[0].spec;
  const std::int64_t B = 3, T = 20;
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  meta::Stream stream;
  const Replica::Options o{.spec = spec, .B = B, .T = T};
  Replica replica(o, *memory, stream);
  stream.work() = {};
  const TokenBatch batch = random_batch(o, 1);
  replica.step(batch.tokens, batch.targets);
  const std::int64_t C = spec.width, D = spec.head_width, H = spec.heads, K = spec.kv_heads, F = spec.ffn_width;
  const std::int64_t matrices = spec.layers * ((H + 2 * K) * D * C + H * D * C + 3 * C * F) + spec.vocabulary * C;
  const std::int64_t pairs = T * (T + 1) / 2;
  EXPECT_EQ(stream.work().matmul_flops, 6 * matrices * B * T + spec.layers * B * H * pairs * D * 14);
}

TEST(Replica, LearnsABatchByHeart) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    ModelSpec spec = tiny_specs()[0].spec;
    spec.init_std = 0.02;
    const Replica::Options o{
        .spec = spec, .B = 2, .T = 12, .precision = precision, .optimizer = {.learning_rate = 1e-2, .weight_decay = 0}};
    HostRun run(o);
    run.replica->init_weights();
    const TokenBatch batch = random_batch(o, 1);
    const double first = run.replica->step(batch.tokens, batch.targets).loss;
    double last = 0;
    for (int i = 0; i < 80; ++i) last = run.replica->step(batch.tokens, batch.targets).loss;
    EXPECT_NEAR(first, std::log(37.0), 0.1);
    EXPECT_LT(last, 0.1) << name_of(precision);
  }
}

// What AdamW's state takes of an element, by tag, on the cpu and on meta.
TEST(Replica, StateTakesTheBytesOfItsTypes) {
  struct Bytes {
    PrecisionSpec precision;
    std::int64_t parameter, gradient, optimizer;
  };
  for (const Bytes& b : {Bytes{Precision::fp64, 8, 8, 16},
                         {Precision::fp32, 4, 4, 8},
                         {{Precision::fp32, StateType::full, StateType::bf16}, 4, 4, 4},
                         {Precision::bf16, 2, 4, 12},
                         {{Precision::bf16, StateType::bf16}, 2, 2, 12},
                         {{Precision::bf16, StateType::full, StateType::bf16}, 2, 4, 8},
                         {{Precision::bf16, StateType::bf16, StateType::bf16}, 2, 2, 8},
                         {{Precision::bf16, StateType::full, StateType::full, StateType::bf16}, 2, 4, 8},
                         {{Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16}, 2, 2, 4}}) {
    const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 1, .T = 4, .precision = b.precision};
    ASSERT_FALSE(o.spec.tied);
    const auto expect_bytes = [&](const Ledger& ledger, const Replica& replica) {
      std::int64_t elements = 0;
      for (int u = 0; u < replica.model().units(); ++u) elements += replica.model().unit(u).layout().owned();
      EXPECT_EQ(ledger.peak(Tag::parameter), b.parameter * elements);
      EXPECT_EQ(ledger.peak(Tag::gradient), b.gradient * elements);
      EXPECT_EQ(ledger.peak(Tag::optimizer), b.optimizer * elements);
    };
    const HostRun real(o);
    expect_bytes(real.ledger, *real.replica);
    Ledger ledger;
    const auto memory = make_memory(Device::meta, ledger);
    meta::Stream stream;
    expect_bytes(ledger, Replica(o, *memory, stream));
  }
}

// Batches of a sequence that can be learned: each token follows from the one before, one in eight by chance.
TokenBatch chained_batch(const Replica::Options& o, unsigned seed) {
  std::mt19937 random(seed);
  TokenBatch batch;
  const auto V = static_cast<std::uint32_t>(o.spec.vocabulary);
  for (std::int64_t b = 0; b < o.B; ++b) {
    std::uint32_t token = random() % V;
    for (std::int64_t t = 0; t < o.T; ++t) {
      batch.tokens.push_back(static_cast<std::int32_t>(token));
      token = random() % 8 == 0 ? random() % V : (5 * token + 3) % V;
      batch.targets.push_back(static_cast<std::int32_t>(token));
    }
  }
  return batch;
}

TEST(Replica, LearnsWithStateOf16Bits) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.init_std = 0.02;
  const auto final_loss = [&](const PrecisionSpec& precision) {
    const Replica::Options o{.spec = spec,
                             .B = 8,
                             .T = 12,
                             .layout = {.micro = 2},
                             .precision = precision,
                             .optimizer = {.learning_rate = 1e-2, .beta2 = 0.999}};
    HostRun run(o);
    run.replica->init_weights();
    for (unsigned i = 0; i < 60; ++i) {
      const TokenBatch batch = chained_batch(o, i);
      run.replica->step(batch.tokens, batch.targets);
    }
    double loss = 0;
    for (unsigned i = 1000; i < 1010; ++i) {
      const TokenBatch batch = chained_batch(o, i);
      loss += run.replica->evaluate(batch.tokens, batch.targets) / 10;
    }
    return loss;
  };
  const double full = final_loss(Precision::fp32);
  EXPECT_LT(full, 2.5) << "it learns, or there is nothing to compare";
  EXPECT_NEAR(final_loss(Precision::bf16), full, 0.02 * full);
  EXPECT_NEAR(final_loss({Precision::bf16, StateType::bf16, StateType::bf16}), full, 0.02 * full);
  for (const StateType gradients : {StateType::full, StateType::bf16})
    for (const StateType moments : {StateType::full, StateType::bf16})
      EXPECT_NEAR(final_loss({Precision::bf16, gradients, moments, StateType::bf16}), full, 0.02 * full);
}

TEST(Replica, SgdWithMomentumLearnsToo) {
  const Replica::Options o{.spec = tiny_specs()[0].spec,
                           .B = 2,
                           .T = 12,
                           .optimizer = {.kind = OptimizerKind::sgd, .learning_rate = 0.1, .weight_decay = 0}};
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 1);
  const double first = run.replica->step(batch.tokens, batch.targets).loss;
  double last = 0;
  for (int i = 0; i < 60; ++i) last = run.replica->step(batch.tokens, batch.targets).loss;
  EXPECT_LT(last, first / 4);
}

TEST(Replica, ABadValueNeverUpdates) {
  const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2, .T = 9};
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 1);
  run.replica->step(batch.tokens, batch.targets);
  const auto tensors = run.replica->tensors();
  float* spoiled = tensors[5].master.data<float>();
  const float kept = *spoiled;
  *spoiled = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::vector<float>> before;
  for (const auto& t : tensors)
    before.emplace_back(t.master.data<float>(), t.master.data<float>() + t.tensor.elements());
  const Replica::Result result = run.replica->step(batch.tokens, batch.targets);
  EXPECT_FALSE(result.updated);
  EXPECT_TRUE(std::isnan(result.norm));
  EXPECT_EQ(run.replica->steps_done(), 1);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    EXPECT_EQ(std::memcmp(before[i].data(), tensors[i].master.raw(), tensors[i].master.bytes()), 0)
        << tensors[i].tensor.name;
  *spoiled = kept;
  EXPECT_TRUE(run.replica->step(batch.tokens, batch.targets).updated);
}

TEST(Replica, ABatchWithoutTargetsChangesOnlyByDecay) {
  const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 1, .T = 4, .optimizer = {.weight_decay = 0}};
  HostRun run(o);
  run.replica->init_weights();
  const auto tensors = run.replica->tensors();
  const float kept = *tensors[0].master.data<float>();
  const Replica::Result result = run.replica->step(std::vector<std::int32_t>(4, 1), std::vector<std::int32_t>(4, -1));
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.norm, 0);
  EXPECT_EQ(*tensors[0].master.data<float>(), kept);
}

TEST(Replica, EvaluationHasNoDropoutAndNoSideEffects) {
  const ModelSpec spec = tiny_specs().back().spec;  // with dropout
  const Replica::Options o{.spec = spec, .B = 2, .T = 9, .precision = Precision::fp64};
  HostRun run(o);
  run.replica->init_weights();
  const TokenBatch batch = random_batch(o, 1);
  const double quiet = run.replica->evaluate(batch.tokens, batch.targets);
  EXPECT_EQ(run.replica->evaluate(batch.tokens, batch.targets), quiet);
  EXPECT_NE(run.replica->compute_gradients(batch.tokens, batch.targets), quiet);
}

}  // namespace
}  // namespace lockstep::tests
