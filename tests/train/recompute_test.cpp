// Computing activations again instead of keeping them changes memory, and not a bit of what is learned.
#include <gtest/gtest.h>

#include <cstring>

#include "comm/meta/communicator.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/mesh_matrix.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

class Recomputing : public ::testing::TestWithParam<std::tuple<NamedSpec, Precision>> {};

struct LearnedBits {
  std::vector<double> losses;
  std::vector<char> weights;
  std::int64_t activation_bytes = 0;
  Ledger::Rows rows;
};

Replica::Options recompute_options(const ModelSpec& spec, Precision precision, const MemorySpec& memory) {
  return {.spec = spec,
          .B = 4,
          .T = 33,
          .layout = {.micro = 2},
          .precision = precision,
          .seed = 3,
          .how = {.memory = memory}};
}

LearnedBits learn_bits(const Replica::Options& o) {
  HostRun run(o);
  run.replica->init_weights();
  LearnedBits learned;
  for (unsigned step = 0; step < 3; ++step) {
    const TokenBatch batch = random_batch(o, step);
    learned.losses.push_back(run.replica->step(batch.tokens, batch.targets).loss);
  }
  learned.weights = weight_bytes(run);
  learned.activation_bytes = run.ledger.peak(Tag::activation);
  learned.rows = run.ledger.rows();
  return learned;
}

TEST_P(Recomputing, ChangesMemoryAndNotABit) {
  const auto& [named, precision] = GetParam();
  const LearnedBits kept = learn_bits(recompute_options(named.spec, precision, {}));
  std::int64_t before = kept.activation_bytes;
  for (const MemorySpec& memory : {MemorySpec{Recompute::elementwise}, MemorySpec{Recompute::projections, 1},
                                   MemorySpec{Recompute::projections}, MemorySpec{Recompute::full}}) {
    const Replica::Options o = recompute_options(named.spec, precision, memory);
    const LearnedBits again = learn_bits(o);
    EXPECT_EQ(again.losses, kept.losses) << name_of(memory.recompute);
    EXPECT_TRUE(again.weights == kept.weights) << name_of(memory.recompute) << ": other bits";
    EXPECT_LT(again.activation_bytes, before) << name_of(memory.recompute) << " " << memory.recompute_blocks;
    before = again.activation_bytes;

    Ledger ledger;
    const auto nothing = make_memory(Device::meta, ledger);
    const Buffer scratch = nothing->allocate(cpu::kScratchBytes, Tag::workspace);
    meta::Stream stream;
    Replica counted(o, *nothing, stream);
    EXPECT_EQ(ledger.rows(), again.rows) << name_of(memory.recompute);
  }
}

// Of a level that recomputes everything: all blocks, every second, and as many fewer in each stage as it holds fewer
// micro-batches.
std::vector<MemorySpec> full_choices(std::int64_t stages) {
  std::vector<MemorySpec> all{{.recompute = Recompute::full}, {.recompute = Recompute::full, .recompute_every = 2}};
  if (stages > 1) {
    all.push_back({.recompute = Recompute::full});
    for (std::int64_t s = 0; s < stages; ++s) all.back().recompute_stages.counts.push_back(stages - 1 - s);
  }
  return all;
}

// Over layouts of all axes, every schedule and ZeRO stage, and models with dropout.
TEST(RecomputingAll, ChangesNoBitInAnyLayout) {
  bool dropout = false, later = false, sharded = false;
  for (const MeshCase& one : mesh_sample(14, 21))
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Replica::Options o = learning_options(one.model.spec, one.layout, precision);
      o.B = one.B;
      o.T = one.T;
      const Learned kept = learn(o, 2);
      for (const MemorySpec& memory : full_choices(one.layout.pp)) {
        o.how.memory = memory;
        expect_equal(learn(o, 2), kept,
                     fmt::format("{}, {}, every {}, of stages {}", one.words(), name_of(precision),
                                 memory.recompute_every, memory.recompute_stages.text()));
      }
      dropout |= one.model.spec.dropout > 0 && one.model.spec.attention_dropout > 0;
      later |= one.layout.schedule == ScheduleKind::zb_h1 || one.layout.schedule == ScheduleKind::zb_v;
      sharded |= one.layout.zero == 3;
    }
  EXPECT_TRUE(dropout && later && sharded) << "or the sample says too little";
}

TEST(RecomputingAll, ChangesNoBitWhereOneRankHasTheState) {
  Replica::Options o =
      learning_options(tiny_specs().back().spec, {.dp = 3, .micro = 2, .dp_kind = DpKind::central}, Precision::fp32);
  const Learned kept = learn(o, 2);
  o.how.memory.recompute = Recompute::full;
  expect_equal(learn(o, 2), kept, "central");
}

// A stage that holds more micro-batches has more to gain: where the first alone recomputes, it alone holds less.
TEST(RecomputingAll, OfTheFirstStageTakesMemoryFromItAlone) {
  const LayoutSpec layout{.pp = 2, .micro = 4};
  ModelSpec spec = tiny_specs()[0].spec;
  spec.layers = 8;
  const auto held = [&](const MemorySpec& memory, int rank) {
    Replica::Options o = learning_options(spec, layout, Precision::fp32);
    o.how.memory = memory;
    Ledger ledger;
    const auto nothing = make_memory(Device::meta, ledger);
    meta::Stream stream;
    meta::Communicator ranks(rank, 2);
    Replica counted(o, {ranks, ranks}, *nothing, stream);
    return ledger.peak(Tag::activation);
  };
  const MemorySpec first{.recompute = Recompute::full, .recompute_stages = {{8, 0}}};
  const MemorySpec all{.recompute = Recompute::full}, others{.recompute = Recompute::elementwise};
  EXPECT_EQ(held(first, 0), held(all, 0));
  EXPECT_LT(held(first, 0), held(others, 0) / 2);
  EXPECT_EQ(held(first, 1), held(others, 1));
  EXPECT_LT(held(all, 1), held(others, 1));
}

std::vector<NamedSpec> four_layer_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  for (NamedSpec& named : all)
    named.spec.layers = 4;  // what is saved must outweigh what lives while one block is made again
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Recomputing,
                         ::testing::Combine(::testing::ValuesIn(four_layer_specs()),
                                            ::testing::Values(Precision::fp64, Precision::bf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace lockstep::tests
