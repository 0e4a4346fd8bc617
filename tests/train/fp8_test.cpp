// Training with FP8 products: it learns what bf16 learns to within a bound, and the same bits whatever the layout that
// keeps the samples of a micro-batch, recomputation, offload or a restart.
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/checkpoint_folder.h"
#include "spec/layout/layout_toml.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/levers.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// A tiny model whose every projection is of multiples of 16.
ModelSpec fit(ModelSpec spec) {
  spec.vocabulary = 37;
  spec.width = 32;
  spec.heads = 4;
  spec.kv_heads = spec.family == Family::gpt2 ? 4 : 2;
  spec.head_width = 8;
  spec.ffn_width = 48;
  return spec;
}
std::vector<NamedSpec> fit_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  for (NamedSpec& named : all) named.spec = fit(named.spec);
  return all;
}

// What the largest models train with: gradients, moments and masters of 16 bits.
constexpr PrecisionSpec kFp8WithHalfStates(Precision::fp8, StateType::bf16, StateType::bf16, StateType::bf16);

Replica::Options fp8_options(const ModelSpec& spec, const LayoutSpec& layout,
                             const PrecisionSpec& precision = Precision::fp8) {
  Replica::Options o = learning_options(spec, layout, precision);
  o.T = 16;
  return o;
}

TEST(Fp8Training, IsNotThatOfBf16) {
  const ModelSpec spec = fit_specs()[0].spec;
  EXPECT_NE(learn(fp8_options(spec, {})).losses, learn(fp8_options(spec, {}, Precision::bf16)).losses);
}

TEST(Fp8Training, LearnsTheSameBitsInEveryLayoutThatKeepsTheOrderOfSums) {
  struct Same {
    const char *one, *other;
  };
  for (const NamedSpec& named : fit_specs())
    for (const PrecisionSpec& precision : {PrecisionSpec(Precision::fp8), kFp8WithHalfStates}) {
      if (precision == kFp8WithHalfStates && named.spec.family != Family::gpt2) continue;
      for (const Same& same : {Same{"micro=4", "pp=2,micro=4"},
                               {"micro=4", "pp=2,micro=4,schedule=zb-h1"},
                               {"dp=3,micro=2,grad_sync=step", "dp=3,micro=2,zero=1"},
                               {"dp=3,micro=2,grad_sync=step", "dp=3,micro=2,zero=3,grad_sync=step"},
                               {"dp=2,micro=2,zero=2", "dp=2,micro=2,zero=3"}})
        expect_equal(learn(fp8_options(named.spec, parse_layout(same.other), precision)),
                     learn(fp8_options(named.spec, parse_layout(same.one), precision)),
                     fmt::format("{}, {}, masters of {}", named.name, same.other, name_of(precision.master)));
    }
}

TEST(Fp8Training, LearnsTheSameBitsWhateverIsRecomputedOrOffloaded) {
  for (const NamedSpec& named : fit_specs())
    for (const char* layout : {"micro=2", "dp=2,zero=3,wrap=halves", "pp=2,micro=4,schedule=zb-h1"}) {
      Replica::Options o = fp8_options(named.spec, parse_layout(layout));
      const Learned kept = learn(o);
      for (const MemorySpec& memory : {MemorySpec{.recompute = Recompute::elementwise},
                                       {.recompute = Recompute::projections},
                                       {.recompute = Recompute::full},
                                       {.offload_activations = Offload::disk}}) {
        o.how.memory = memory;
        expect_equal(learn(o), kept, fmt::format("{}, {}, {}", named.name, layout, name_of(memory.recompute)));
      }
    }
}

TEST(Fp8Training, With16BitStateLearnsTheSameBitsWhereverStateGradientsAndWeightsAre) {
  for (const NamedSpec& named : {fit_specs()[0], fit_specs()[6]})
    for (const char* layout : {"micro=2,zero=3", "dp=2,micro=2,zero=3"}) {
      Replica::Options o = fp8_options(named.spec, parse_layout(layout), kFp8WithHalfStates);
      o.how.memory.recompute = Recompute::full;
      const Learned here = learn(o);
      for (const Offload where : {Offload::host, Offload::disk}) {
        o.how.memory = {.recompute = Recompute::full,
                        .offload_optimizer = where,
                        .offload_gradients = where,
                        .offload_parameters = where,
                        .offload_window = 0};
        expect_equal(learn(o), here, fmt::format("{}, {}, on {}", named.name, layout, name_of(where)));
      }
    }
}

TEST(Fp8Training, OfSamplesInOtherRanksIsAsCloseAsRoundingAllows) {
  for (const NamedSpec& named : {fit_specs()[0], fit_specs()[5]}) {
    const Learned one = learn(fp8_options(named.spec, parse_layout("micro=3"))),
                  three = learn(fp8_options(named.spec, parse_layout("dp=3")));
    EXPECT_NEAR(three.losses[0], one.losses[0], 1e-6 * one.losses[0]);
    for (std::size_t step = 0; step < one.losses.size(); ++step)
      EXPECT_NEAR(three.losses[step], one.losses[step], 1e-2 * one.losses[step]);
    const Learned cut = learn(fp8_options(named.spec, parse_layout("cp=2,micro=3")));  // scales of half the tokens
    for (std::size_t step = 0; step < one.losses.size(); ++step)
      EXPECT_NEAR(cut.losses[step], one.losses[step], 1e-2 * one.losses[step]);
  }
}

// Of a split layer every number has the code of one rank's; what differs is that sums over ranks are of bf16.
TEST(Fp8Training, OfLayersSplitOverRanksIsAsCloseAsRoundingAllows) {
  for (const NamedSpec& named : {fit_specs()[0], fit_specs()[5], fit_specs()[6]}) {
    const Learned one = learn(fp8_options(named.spec, parse_layout("micro=2"))),
                  in_bf16 = learn(fp8_options(named.spec, parse_layout("micro=2"), Precision::bf16));
    for (const char* text : {"tp=2,micro=2", "tp=2,micro=2,sp=off", "tp=2,pp=2,micro=2,schedule=zb-h1"}) {
      const Learned split = learn(fp8_options(named.spec, parse_layout(text)));
      for (std::size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(split.losses[step], one.losses[step], 1e-2 * one.losses[step]) << named.name << ", " << text;
      EXPECT_NE(split.losses, in_bf16.losses) << named.name << ", " << text;
    }
    const Learned of_ranks = learn(fp8_options(named.spec, parse_layout("dp=2,micro=2,tp=2,grad_sync=micro"))),
                  sharded = learn(fp8_options(named.spec, parse_layout("dp=2,micro=2,tp=2,zero=3")));
    expect_equal(sharded, of_ranks, named.name + ", dp=2,tp=2,zero=3");
  }
}

TEST(Fp8Training, OfSplitLayersLearnsTheSameBitsWhateverOverlaps) {
  struct Split {
    std::size_t model;
    const char* layout;
    std::vector<const char*> others;
  };
  // With sequence parallelism the number of pieces says which rows are whose, and so how norms' gradients are summed.
  for (const Split& split : {Split{0, "tp=2,micro=2", {",overlap=off"}},
                             {6, "tp=2,micro=2,sp=off", {",overlap=off", ",tp_chunks=1", ",tp_chunks=2"}}}) {
    const NamedSpec named = fit_specs()[split.model];
    Replica::Options o = fp8_options(named.spec, parse_layout(split.layout));
    o.T = 64;  // pieces of several sixteens
    const Learned usual = learn(o);
    for (const char* other : split.others) {
      o.layout = parse_layout(std::string(split.layout) + other);
      expect_equal(learn(o), usual, named.name + ", " + split.layout + other);
    }
    o.layout = parse_layout(split.layout);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      o.how.memory.recompute = recompute;
      expect_equal(learn(o), usual, fmt::format("{}, {}, {}", named.name, split.layout, name_of(recompute)));
    }
  }
}

TEST(Fp8Training, OfSplitLayersTakesTheBytesThatMetaCounted) {
  for (const char* layout : {"tp=2,micro=2", "tp=2,micro=2,sp=off", "pp=2,tp=2,micro=2,schedule=zb-h1"}) {
    RunSpec run = resumed_run(fit_specs()[0].spec, parse_layout(layout));
    run.data.seq = 16;
    run.precision = Precision::fp8;
    expect_costs_as_planned(run, layout);
  }
}

TEST(Fp8Training, AResumedRunLearnsTheBitsOfOneThatWasNotInterrupted) {
  RunSpec run = resumed_run(fit_specs()[0].spec, {.micro = 2});
  run.data.seq = 16;
  run.precision = Precision::fp8;
  const TemporaryFolder folder, unused;
  const TrainedState stayed = train_all(run, folder.path());
  EXPECT_TRUE(train_all(run, unused.path(), folder.path() / step_folder_name(kSavedStep)) == stayed);
}

TEST(Fp8Training, TakesTheBytesThatMetaCountedAndItsFlops) {
  for (const NamedSpec& named : fit_specs())
    for (const Recompute recompute : {Recompute::none, Recompute::projections, Recompute::full}) {
      Replica::Options o = fp8_options(named.spec, {.micro = 2});
      o.how.memory.recompute = recompute;
      HostRun real(o);
      real.replica->init_weights();
      const TokenBatch batch = random_batch(o, 1);
      real.replica->step(batch.tokens, batch.targets);
      Ledger ledger;
      const auto memory = make_memory(Device::meta, ledger);
      meta::Stream counting(*memory, cpu::kScratchBytes), plain;
      Replica counted(o, *memory, counting);
      counted.init_weights();
      counting.work() = {};
      counted.step(batch.tokens, batch.targets);
      EXPECT_EQ(real.ledger.rows(), ledger.rows()) << named.name;
      // The products are those of bf16; what is quantized comes on top.
      o.precision = Precision::bf16;
      Ledger other_ledger;
      const auto other = make_memory(Device::meta, other_ledger);
      Replica in_bf16(o, *other, plain);
      in_bf16.init_weights();
      plain.work() = {};
      in_bf16.step(batch.tokens, batch.targets);
      EXPECT_EQ(counting.work().matmul_flops, plain.work().matmul_flops);
      EXPECT_GT(counting.work().calls, plain.work().calls);
    }
}

TEST(Fp8Training, ABadValueUpdatesNothingAndIsFound) {
  const Replica::Options o = fp8_options(fit_specs()[0].spec, {.micro = 2});
  HostRun run(o);
  run.replica->init_weights();
  for (const Replica::Named& named : run.replica->tensors()) {
    if (named.tensor.name != "model.layers.1.mlp.down_proj.weight") continue;
    const std::vector<double> values = to_doubles(named.master, *run.stream);
    std::vector<float> changed(values.begin(), values.end());
    for (std::size_t i = 0; i < changed.size(); i += 2) changed[i] = 3e38f;  // what they are multiplied with overflows
    upload(named.master, changed.data(), *run.stream);
  }
  run.replica->resume(0, 0);
  const std::vector<char> before = weight_bytes(run);
  const TokenBatch batch = random_batch(o, 1);
  EXPECT_FALSE(run.replica->step(batch.tokens, batch.targets).updated);
  EXPECT_EQ(weight_bytes(run), before);
  const auto found = run.replica->find_bad_value(batch.tokens, batch.targets);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("block.1"), std::string::npos) << *found;
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

TEST(Fp8Training, EndsWithinTwoPercentOfBf16) {
  for (const NamedSpec& named : {fit_specs()[0], fit_specs()[6]}) {
    const auto final_loss = [&](const PrecisionSpec& precision) {
      Replica::Options o = fp8_options(named.spec, {.micro = 2}, precision);
      o.spec.init_std = 0.02;
      o.B = 8;
      o.optimizer = {.learning_rate = 1e-2, .beta2 = 0.999};
      HostRun run(o);
      run.replica->init_weights();
      for (unsigned i = 0; i < 120; ++i) {
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
    const double whole = final_loss(Precision::bf16);
    EXPECT_LT(whole, 2.0) << "it learns, or there is nothing to compare";
    EXPECT_NEAR(final_loss(Precision::fp8), whole, 0.02 * whole) << named.name;
    EXPECT_NEAR(final_loss(kFp8WithHalfStates), whole, 0.02 * whole) << named.name << " with state of 16 bits";
  }
}

}  // namespace
}  // namespace lockstep::tests
