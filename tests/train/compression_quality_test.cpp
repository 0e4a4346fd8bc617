// What is lost with the elements that are not sent, on a language of known entropy: of gradients with error feedback
// less, of activations nothing but where few are left. Each loss is a property of the test's report
// (--gtest_output=xml).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

RunSpec small_run(std::uint64_t seed) {
  RunSpec spec;
  ModelSpec& model = spec.model = family_defaults(Family::llama);
  model.vocabulary = 32;
  model.layers = 2;
  model.width = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_width = 8;
  model.ffn_width = 64;
  model.max_positions = 64;
  model.norm_eps = 1e-5;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 32, .order = 1, .branching = 4, .seed = seed};
  spec.data.seq = 32;
  spec.train = {.steps = 300, .global_batch = 16, .eval_batches = 16, .seed = seed, .save_last = false};
  spec.optimizer.learning_rate = 3e-3;
  spec.schedule.warmup = 20;
  spec.run.threads = 1;
  return spec;
}

// The evaluation loss of four ranks after 300 steps.
double loss_of(const RunSpec& spec) {
  const TemporaryFolder folder;
  double loss = 0;
  run_ranks(4, [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder.path(), {.ranks = group.get()});
    run.init_weights();
    Watcher nobody;
    Progress progress = beginning(run);
    train(run, progress, nobody);
    const double mine = run.evaluate().loss;
    if (group->rank() == 0) loss = mine;
  });
  return loss;
}

double loss_after_training(const std::string& form, bool feedback, std::uint64_t seed) {
  RunSpec spec = small_run(seed);
  spec.layout.dp = 4;
  spec.sync.compress = Compression::parse(form).value();
  spec.sync.feedback = feedback;
  return loss_of(spec);
}

// Four stages: the embedding, two layers, the head.
double loss_of_stages(const std::string& form, std::uint64_t seed) {
  RunSpec spec = small_run(seed);
  spec.layout.pp = spec.layout.micro = 4;
  spec.sync.compress_activations = Compression::parse(form).value();
  const double loss = loss_of(spec);
  ::testing::Test::RecordProperty(fmt::format("{}_{}", form, seed), fmt::format("{:.3f}", loss));
  return loss;
}

TEST(CompressionQuality, RoundedGradientsLearnAsMuch) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double full = loss_after_training("none", true, seed);
    for (const char* form : {"bf16", "int8"})
      EXPECT_LE(loss_after_training(form, true, seed), 1.01 * full) << form << ", seed " << seed;
  }
}

TEST(CompressionQuality, TopKIsWorseWithoutFeedback) {
  for (const std::uint64_t seed : {1, 2, 3})
    EXPECT_LT(loss_after_training("topk:0.05", true, seed), loss_after_training("topk:0.05", false, seed)) << seed;
}

TEST(CompressionQuality, RoundedActivationsLearnAsMuch) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double exact = loss_of_stages("none", seed);
    for (const char* form : {"bf16", "int8"})
      EXPECT_LE(loss_of_stages(form, seed), 1.01 * exact) << form << ", " << seed;
  }
}

// There is no feedback that would make up for them.
TEST(CompressionQuality, ActivationsOfFewElementsLearnLess) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double exact = loss_of_stages("none", seed);
    for (const char* form : {"onebit", "topk:0.3", "topk:0.1"})
      EXPECT_GT(loss_of_stages(form, seed), exact) << form << ", " << seed;
  }
}

}  // namespace
}  // namespace lockstep::tests
