// Steps begun before the one before is waited for: each has its own batch, rate, masks and result, and the loop does
// with them what it does one after the other.
#include <gtest/gtest.h>

#include <cstring>

#include "support/host_run.h"
#include "support/steps_ahead_claims.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(LoopAhead, RecordsSavesAndLearnsWhatStepsInTurnDo) { expect_ahead_equals_in_turn(RunDevice::cpu); }
TEST(LoopAhead, ABadValueStopsOrIsSkippedWithAStepBegunAfterIt) { expect_bad_values_ahead(RunDevice::cpu); }
TEST(LoopAhead, AnOverflowIsSkippedAndHalvesTheScaleOfAStepThatWasUnderWay) { expect_overflow_ahead(RunDevice::cpu); }
TEST(LoopAhead, EndsWithWhatWasBegunWhenItIsToStop) { expect_stop_ahead(RunDevice::cpu); }

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

// Both in flight before either is waited for; then both are, in the order they were begun.
TEST(StepsInFlight, TwoHaveTheirOwnBatchesRatesAndResults) {
  for (const NamedSpec& named : tiny_specs()) {
    const Replica::Options o{.spec = named.spec, .B = 2, .T = 9, .seed = 1};
    HostRun one(o), two(o);
    one.replica->init_weights();
    two.replica->init_weights();
    for (unsigned step = 0; step < 6; step += 2) {
      std::vector<Replica::Result> in_turn, ahead;
      for (unsigned s = step; s < step + 2; ++s) {
        const TokenBatch batch = random_batch(o, s);
        one.replica->set_learning_rate(1e-3 * (s + 1));
        in_turn.push_back(one.replica->step(batch.tokens, batch.targets));
      }
      for (unsigned s = step; s < step + 2; ++s) {
        TokenBatch batch = random_batch(o, s);
        two.replica->set_learning_rate(1e-3 * (s + 1));
        two.replica->begin_step(batch.tokens, batch.targets);
        std::ranges::fill(batch.tokens, -7);  // it has been taken
        std::ranges::fill(batch.targets, -7);
      }
      EXPECT_EQ(two.replica->steps_in_flight(), 2);
      const TokenBatch third = random_batch(o, 9);
      EXPECT_THROW(two.replica->begin_step(third.tokens, third.targets), ProgramError);
      EXPECT_THROW(two.replica->evaluate(third.tokens, third.targets), ProgramError);
      EXPECT_THROW(two.replica->compute_gradients(third.tokens, third.targets), ProgramError);
      for (int i = 0; i < 2; ++i) ahead.push_back(two.replica->finish_step());
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(ahead[i].loss, in_turn[i].loss) << named.name;
        EXPECT_EQ(ahead[i].norm, in_turn[i].norm) << named.name;
        EXPECT_TRUE(ahead[i].updated);
      }
      EXPECT_NE(ahead[0].loss, ahead[1].loss);
    }
    EXPECT_EQ(two.replica->steps_done(), 6);
    const auto a = one.replica->tensors(), b = two.replica->tensors();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(std::memcmp(a[i].master.raw(), b[i].master.raw(), a[i].master.bytes()), 0) << a[i].tensor.name;
  }
}

// The first of two is bad: it moves nothing, and the second moves unless the run is to stop.
TEST(StepsInFlight, ABadValueInTheFirstOfTwo) {
  for (const bool halt : {false, true}) {
    const Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2, .T = 9, .seed = 1, .halt_on_bad_value = halt};
    HostRun run(o), good(o);
    for (HostRun* each : {&run, &good}) {
      each->replica->init_weights();
      for (const auto& t : each->replica->tensors())  // token 0 alone is bad
        if (t.tensor.name == "model.embed_tokens.weight")
          t.master.data<float>()[0] = std::numeric_limits<float>::infinity();
    }
    TokenBatch bad = random_batch(o, 1), other = random_batch(o, 2);
    bad.tokens[4] = 0;
    std::ranges::replace(other.tokens, 0, 1);
    run.replica->begin_step(bad.tokens, bad.targets);
    run.replica->begin_step(other.tokens, other.targets);
    const Replica::Result first = run.replica->finish_step();
    EXPECT_FALSE(first.updated);
    EXPECT_EQ(run.replica->steps_done(), 0);
    const Replica::Result second = run.replica->finish_step();
    EXPECT_EQ(second.updated, !halt);
    EXPECT_EQ(run.replica->steps_done(), halt ? 0 : 1);
    // Had the first never been, the second would have had the same loss and done the same.
    EXPECT_EQ(second.loss, good.replica->evaluate(other.tokens, other.targets));
    if (!halt) {
      EXPECT_TRUE(good.replica->step(other.tokens, other.targets).updated);
    }
    const auto a = run.replica->tensors(), b = good.replica->tensors();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(std::memcmp(a[i].master.raw(), b[i].master.raw(), a[i].master.bytes()), 0)
          << a[i].tensor.name << (halt ? ", halted" : "");
  }
}

}  // namespace
}  // namespace lockstep::tests
