// What is lost with the elements that are not sent, on a language of known entropy: with error feedback, less.
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

// The evaluation loss of four ranks after 300 steps.
double loss_after_training(const std::string& form, bool feedback, std::uint64_t seed) {
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
  spec.layout.dp = 4;
  spec.run.threads = 1;
  spec.sync.compress = Compression::parse(form).value();
  spec.sync.feedback = feedback;
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

}  // namespace
}  // namespace lockstep::tests
