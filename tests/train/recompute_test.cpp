// Computing activations again instead of keeping them changes memory, and not a bit of what is learned.
#include <gtest/gtest.h>

#include <cstring>

#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

class Recomputing : public ::testing::TestWithParam<std::tuple<NamedSpec, Precision>> {};

struct Learned {
  std::vector<double> losses;
  std::vector<char> weights;
  std::int64_t activation_bytes = 0;
  Ledger::Rows rows;
};

Replica::Options options(const ModelSpec& spec, Precision precision, const MemorySpec& memory) {
  return {.spec = spec,
          .B = 4,
          .T = 33,
          .layout = {.micro = 2},
          .precision = precision,
          .seed = 3,
          .how = {.memory = memory}};
}

Learned learn(const Replica::Options& o) {
  HostRun run(o);
  run.replica->init_weights();
  Learned learned;
  for (unsigned step = 0; step < 3; ++step) {
    const TokenBatch batch = random_batch(o, step);
    learned.losses.push_back(run.replica->step(batch.tokens, batch.targets).loss);
  }
  for (const auto& t : run.replica->tensors()) {
    const char* p = static_cast<const char*>(t.master.raw());
    learned.weights.insert(learned.weights.end(), p, p + t.master.bytes());
  }
  learned.activation_bytes = run.ledger.peak(Tag::activation);
  learned.rows = run.ledger.rows();
  return learned;
}

TEST_P(Recomputing, ChangesMemoryAndNotABit) {
  const auto& [named, precision] = GetParam();
  const Learned kept = learn(options(named.spec, precision, {}));
  std::int64_t before = kept.activation_bytes;
  for (const MemorySpec memory : {MemorySpec{Recompute::elementwise}, MemorySpec{Recompute::projections, 1},
                                  MemorySpec{Recompute::projections}}) {
    const Replica::Options o = options(named.spec, precision, memory);
    const Learned again = learn(o);
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

std::vector<NamedSpec> deep_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  for (NamedSpec& named : all)
    named.spec.layers = 4;  // what is saved must outweigh what lives while one block is made again
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Recomputing,
                         ::testing::Combine(::testing::ValuesIn(deep_specs()),
                                            ::testing::Values(Precision::fp64, Precision::bf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name_of(std::get<1>(info.param)));
                         });

// Two steps begun before the first is waited for learn what one after the other does.
TEST(StepsInFlight, LearnTheSameBits) {
  for (const NamedSpec& named : tiny_specs()) {
    const Replica::Options o{.spec = named.spec, .B = 2, .T = 9, .seed = 1};
    HostRun one(o), two(o);
    one.replica->init_weights();
    two.replica->init_weights();
    std::vector<double> in_turn, ahead;
    for (unsigned step = 0; step < 4; ++step) {
      const TokenBatch batch = random_batch(o, step);
      one.replica->set_learning_rate(1e-3 * (step + 1));
      in_turn.push_back(one.replica->step(batch.tokens, batch.targets).loss);
      two.replica->set_learning_rate(1e-3 * (step + 1));
      two.replica->begin_step(batch.tokens, batch.targets);
      if (step > 0) ahead.push_back(two.replica->finish_step().loss);
      EXPECT_EQ(two.replica->steps_in_flight(), 1);
    }
    ahead.push_back(two.replica->finish_step().loss);
    EXPECT_EQ(ahead, in_turn) << named.name;
    EXPECT_EQ(two.replica->steps_done(), 4);
    EXPECT_THROW(two.replica->finish_step(), ProgramError);
    const auto a = one.replica->tensors(), b = two.replica->tensors();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(std::memcmp(a[i].master.raw(), b[i].master.raw(), a[i].master.bytes()), 0) << a[i].tensor.name;
  }
}

// A replica that halts on a bad value stays as it was before it, whatever is begun behind.
TEST(StepsInFlight, NoneUpdatesBehindABadValueWhenTheRunIsToStop) {
  for (const bool halt : {false, true}) {
    const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2, .T = 9, .seed = 1, .halt_on_bad_value = halt};
    HostRun run(o);
    run.replica->init_weights();
    const TokenBatch batch = random_batch(o, 1);
    run.replica->set_learning_rate(std::numeric_limits<double>::infinity());  // the weights of step 2 are not finite
    run.replica->step(batch.tokens, batch.targets);
    run.replica->set_learning_rate(0);
    EXPECT_FALSE(run.replica->step(batch.tokens, batch.targets).updated);
    // Weights that are good again.
    run.replica->init_weights();
    EXPECT_EQ(run.replica->step(batch.tokens, batch.targets).updated, !halt);
  }
}

}  // namespace
}  // namespace lockstep::tests
