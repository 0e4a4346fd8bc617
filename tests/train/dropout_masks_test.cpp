// The masks of a training step: those of its own number, site, layer, sample and position, as the definition says
// (support/naive_model.h has it in plain loops), and once more when the step is run again to find a bad value.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/philox.h"
#include "model/names.h"
#include "support/host_run.h"
#include "support/naive_model.h"
#include "support/reference_random.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

std::vector<NamedSpec> dropping() {
  std::vector<NamedSpec> all;
  for (NamedSpec named : tiny_specs()) {
    if (named.name != "llama" && named.name != "gpt2") continue;
    for (const auto& [where, hidden, attention] :
         {std::tuple{"_everywhere", 0.2, 0.3}, std::tuple{"_branches", 0.4, 0.0}, std::tuple{"_attention", 0.0, 0.4}}) {
      named.spec.dropout = hidden;
      named.spec.attention_dropout = attention;
      all.push_back({named.name + where, named.spec});
    }
  }
  return all;
}

class Masks : public ::testing::TestWithParam<NamedSpec> {};

// The loss of every training step on the same batch is the plain loops' with the masks of that step; weights stay.
TEST_P(Masks, OfEveryStepAreTheDefinitions) {
  constexpr std::uint64_t kSeed = 11;
  for (const int micro : {1, 3}) {
    const Replica::Options o{.spec = GetParam().spec,
                             .B = 3,
                             .T = 6,
                             .layout = {.micro = micro},
                             .precision = Precision::fp64,
                             .optimizer = {.learning_rate = 0, .weight_decay = 0},
                             .seed = kSeed};
    HostRun run(o);
    run.replica->init_weights();
    std::map<std::string, Values> weights;
    for (const auto& t : run.replica->tensors()) weights[t.tensor.name] = to_doubles(t.master, *run.stream);
    TokenBatch batch = random_batch(o, 1);
    batch.targets[2] = batch.targets[9] = -1;  // which have no part in the mean
    std::set<double> losses;
    for (std::int64_t step = 0; step < 4; ++step) {
      double total = 0, count = 0;
      for (std::int64_t b = 0; b < o.B; ++b) {
        const auto part = [&](const std::vector<std::int32_t>& all) {
          return std::vector<int>(all.begin() + b * o.T, all.begin() + (b + 1) * o.T);
        };
        const NaiveDropout dropout{.seed = kSeed, .batch = step, .sample = b};
        const Values logits = naive_logits(
            o.spec, [&](const std::string& name) -> const Values& { return weights.at(name); }, part(batch.tokens),
            &dropout);
        for (const double loss : naive_losses(logits, part(batch.targets))) total += loss;
        for (const int target : part(batch.targets)) count += target >= 0;
      }
      const double loss = run.replica->step(batch.tokens, batch.targets).loss;
      EXPECT_NEAR(loss, total / count, 1e-12) << "step " << step << ", micro " << micro;
      losses.insert(loss);
      run.replica->evaluate(batch.tokens, batch.targets);  // has no masks, and takes none from the steps
    }
    EXPECT_EQ(losses.size(), 4u) << "every step has masks of its own";
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Masks, ::testing::ValuesIn(dropping()), [](const auto& info) { return info.param.name; });

// No two sites of any two steps share a key.
TEST(MaskKeys, DifferByStepSiteLayerAndSeed) {
  std::set<std::uint64_t> keys;
  std::size_t sites = 0;
  for (const std::uint64_t seed : {0, 1, 2})
    for (std::uint64_t step = 0; step < 200; ++step) {
      const std::uint64_t of_step = random_key(seed, "dropout") + step;
      const auto add = [&](const std::string& site) { keys.insert(random_key(of_step, site)), ++sites; };
      add("embedding");
      for (std::int64_t layer = 0; layer < 12; ++layer) {
        const BlockNames names = block_names(family_defaults(Family::gpt2), layer);
        for (const std::string& site : {names.out, names.down, names.out + "/probabilities"}) add(site);
      }
    }
  EXPECT_EQ(keys.size(), sites);
}

// Embeddings that overflow where they are kept, and only there: the first bad element tells the mask.
class Replayed : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSeed = 5;
  Replayed() {
    o_.spec.dropout = 0.8;
    for (const auto& t : run().tensors())
      if (t.tensor.name == "model.embed_tokens.weight")
        for (std::int64_t i = 0; i < t.tensor.elements(); ++i) t.master.data<float>()[i] = 3e38f;
  }
  Replica& run() {
    if (!run_) {
      run_ = std::make_unique<HostRun>(o_);
      run_->replica->init_weights();
    }
    return *run_->replica;
  }
  std::string expected(std::int64_t step) const {
    const std::uint64_t key = random_key(random_key(kSeed, "dropout") + static_cast<std::uint64_t>(step), "embedding");
    for (std::int64_t i = 0;; ++i)
      if (reference::keeps(key, o_.spec.dropout, i / o_.spec.width / o_.T, i / o_.spec.width % o_.T, i % o_.spec.width))
        return fmt::format("activation 'x.1' of embedding after forward(0, 0) (element {} is inf)", i);
  }
  Replica::Options o_{.spec = tiny_specs()[0].spec, .B = 2, .T = 5, .seed = kSeed};
  std::unique_ptr<HostRun> run_;
};

TEST_F(Replayed, AStepThatIsRunAgainHasItsOwnMasks) {
  const TokenBatch batch = random_batch(o_, 1);
  std::set<std::string> all;
  for (std::int64_t step = 0; step < 12; ++step) {
    EXPECT_FALSE(run().step(batch.tokens, batch.targets).updated);
    EXPECT_EQ(run().find_bad_value(batch.tokens, batch.targets), expected(step)) << step;
    EXPECT_EQ(run().find_bad_value(batch.tokens, batch.targets), expected(step)) << "and once more";
    all.insert(expected(step));
  }
  EXPECT_GT(all.size(), 2u) << "or the masks are alike";
}

// Of two steps in flight the first is asked about when both are done.
TEST_F(Replayed, SoHasOneThatOthersWereBegunAfter) {
  const TokenBatch batch = random_batch(o_, 1);
  for (std::int64_t step = 0; step < 12; step += 2) {
    run().begin_step(batch.tokens, batch.targets);
    run().begin_step(batch.tokens, batch.targets);
    EXPECT_FALSE(run().finish_step().updated);
    EXPECT_FALSE(run().finish_step().updated);
    EXPECT_EQ(run().find_bad_value(batch.tokens, batch.targets, 1), expected(step)) << step;
    EXPECT_EQ(run().find_bad_value(batch.tokens, batch.targets, 0), expected(step + 1)) << step;
  }
}

}  // namespace
}  // namespace lockstep::tests
