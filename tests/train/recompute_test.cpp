// Computing activations again instead of keeping them changes memory, and not a bit of what is learned.
#include <gtest/gtest.h>

#include <cstring>

#include "support/host_run.h"
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
  for (const MemorySpec memory : {MemorySpec{Recompute::elementwise}, MemorySpec{Recompute::projections, 1},
                                  MemorySpec{Recompute::projections}}) {
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
