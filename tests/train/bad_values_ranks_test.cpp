// Of several ranks, the one whose value went bad first is named, by all of them, whichever rank that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "comm/threads/run_ranks.h"
#include "support/host_run.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Finite weights whose product is not: what the first projection of a block's feed-forward gives overflows.
void overflow_in_block(Replica& replica, int block) {
  const std::string of = fmt::format("model.layers.{}.", block);
  for (const Replica::Named& t : replica.tensors()) {
    if (t.tensor.name == of + "mlp.gate_proj.weight") t.master.data<float>()[0] = 3e38f;
    if (t.tensor.name == of + "post_attention_layernorm.weight") t.master.data<float>()[0] = 1e30f;
  }
}

// What each of the ranks is told when these blocks overflow, by rank; -1: none does.
std::vector<std::string> told_of_bad_values(const std::vector<int>& blocks, bool weight_of_last = false) {
  const int count = static_cast<int>(blocks.size());
  Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2 * count, .T = 9, .seed = 1};
  o.layout.dp = count;
  const TokenBatch all = random_batch(o, 1);
  std::vector<std::string> said(blocks.size());
  run_ranks(count, [&](std::unique_ptr<Communicator> ranks) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    cpu::Stream stream(*memory, 1);
    Replica replica(o, Replica::Ranks{*ranks, *ranks}, *memory, stream);
    replica.init_weights();
    const auto rank = static_cast<std::size_t>(ranks->rank());
    if (blocks[rank] >= 0) overflow_in_block(replica, blocks[rank]);
    if (weight_of_last && rank + 1 == blocks.size())
      replica.tensors()[0].master.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    const auto first = static_cast<std::size_t>(replica.given().first * o.T),
               size = static_cast<std::size_t>(replica.given().count * o.T);
    const auto tokens = std::span(all.tokens).subspan(first, size),
               targets = std::span(all.targets).subspan(first, size);
    EXPECT_EQ(replica.step(tokens, targets).updated, blocks == std::vector<int>(blocks.size(), -1));
    said[rank] = replica.find_bad_value(tokens, targets).value_or("none");
  });
  return said;
}

TEST(BadValuesOfRanks, TheEarliestIsNamedWithItsRank) {
  ASSERT_GE(tiny_specs()[0].spec.layers, 2);
  const auto of = [](int block, int rank) {
    return AllOf(HasSubstr(fmt::format("activation 'inner' of block.{} after forward({}, 0)", block, block + 1)),
                 HasSubstr(fmt::format(" on rank {}", rank)));
  };
  EXPECT_THAT(told_of_bad_values({-1, -1, -1}), Each("none"));
  EXPECT_THAT(told_of_bad_values({-1, 1, -1}), Each(of(1, 1))) << "a later rank alone";
  EXPECT_THAT(told_of_bad_values({-1, -1, 0}), Each(of(0, 2)));
  EXPECT_THAT(told_of_bad_values({1, 0}), Each(of(0, 1))) << "both, the later rank's came first";
  EXPECT_THAT(told_of_bad_values({0, 1}), Each(of(0, 0)));
  EXPECT_THAT(told_of_bad_values({1, 1}), Each(of(1, 0))) << "at the same place, the lowest rank";
  EXPECT_THAT(told_of_bad_values({0, -1}, true), Each(AllOf(HasSubstr("the weight "), HasSubstr("on rank 1"))))
      << "a weight is before any activation";
}

// Through the loop: rank 0's watcher hears what happened on rank 1.
TEST(BadValuesOfRanks, AreToldByTheLoop) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 3, .global_batch = 4, .save_last = false};
  spec.layout.dp = 2;
  spec.run.threads = 1;
  const TemporaryFolder folder;
  struct Notes final : Watcher {
    std::string notes, reason;
    void note(const std::string& line) override { notes += line + "\n"; }
    void ended_by(const std::string& why) override { reason = why; }
  } notes;
  run_ranks(2, [&](std::unique_ptr<Communicator> ranks) {
    TrainingRun run(spec, Device::cpu, folder.path(), {.ranks = ranks.get()});
    run.init_weights();
    if (ranks->rank() == 1) overflow_in_block(run.replica(), 1);
    Progress progress = beginning(run);
    Watcher silent;
    EXPECT_EQ(train(run, progress, ranks->rank() == 0 ? notes : silent), Ending::bad_values);
    EXPECT_EQ(progress.step, 1);
    EXPECT_EQ(progress.updates, 0);
  });
  EXPECT_THAT(notes.reason, AllOf(HasSubstr("step 1: a value is not finite, nothing was updated; the first was"),
                                  HasSubstr("of block.1 after forward(2, 0)"), HasSubstr("on rank 1")));
  EXPECT_EQ(notes.notes.find("not finite"), std::string::npos) << "it is told once: " << notes.notes;
}

}  // namespace
}  // namespace lockstep::tests
