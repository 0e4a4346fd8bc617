// FSDP's knobs: how far ahead weights are gathered, and which blocks in one call, change messages and memory and not a
// bit of what is learned.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "spec/layout/layout_toml.h"
#include "support/learning_ranks.h"
#include "support/program.h"
#include "support/recorded_step.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

ModelSpec five_blocks(bool tied) {
  ModelSpec spec = tiny_specs()[tied ? 1 : 0].spec;
  spec.layers = 5;
  return spec;
}

const char* const kKnobs[] = {"prefetch=0",
                              "prefetch=2",
                              "prefetch=9",
                              "wrap=2+3",
                              "wrap=1+1+3",
                              "wrap=1MiB",  // all of a stage: they are small
                              "wrap=2+2+1,prefetch=0",
                              "wrap=3+2,prefetch=2",
                              "wrap=2+3,overlap=off",
                              "wrap=2+3,reshard=never"};

class FsdpKnobs : public ::testing::TestWithParam<const char*> {};

// With three micro-batches or more, or uneven shares; clipping is active.
TEST_P(FsdpKnobs, ChangeNoBit) {
  int models = 0;
  for (const bool tied : {false, true}) {
    const std::string plain = GetParam();
    ModelSpec spec = five_blocks(tied);
    if (plain.find("tp=") != std::string::npos || plain.find("cp=") != std::string::npos) {
      const std::vector<NamedSpec> specs = cut_specs();
      const auto even = std::ranges::find_if(
          specs, [&](const NamedSpec& s) { return s.spec.kv_heads % 2 == 0 && s.spec.tied == tied; });
      if (even == specs.end()) continue;
      spec = even->spec;
      spec.layers = 5;
    }
    Replica::Options o = learning_options(spec, parse_layout(plain), Precision::fp32);
    if (o.layout.cp > 1 || o.layout.tp > 1) o.T = 8;
    ++models;
    const Learned without = learn(o, 2);
    EXPECT_GT(without.norms[0], 0.1) << "clipping is to be active";
    for (const char* knobs : kKnobs) {
      o.layout = parse_layout(plain + "," + knobs);
      expect_equal(learn(o, 2), without, to_text(o.layout));
    }
    o.layout = parse_layout(plain + ",wrap=2+3,prefetch=2");
    o.how.memory.gathered = 1;
    expect_equal(learn(o, 2), without, to_text(o.layout) + " with room");
    o.how.memory = {.recompute = Recompute::full};
    expect_equal(learn(o, 2), without, to_text(o.layout) + " with recomputation");
  }
  EXPECT_GE(models, 1);
}

INSTANTIATE_TEST_SUITE_P(Layouts, FsdpKnobs,
                         ::testing::Values("dp=1,zero=3,micro=3", "dp=2,zero=3,micro=3", "dp=3,zero=3,micro=4",
                                           "dp=4,zero=3,micro=3", "dp=3,zero=3,micro=4,grad_sync=step",
                                           "dp=4,zero=3,micro=2,shard=2", "dp=5,zero=3,micro=2,uneven=on",
                                           "dp=2,pp=2,zero=3,micro=4", "dp=3,pp=2,zero=3,micro=4,schedule=zb-h1",
                                           "dp=2,pp=2,zero=3,micro=4,schedule=interleaved", "dp=2,tp=2,zero=3,micro=3",
                                           "dp=1,cp=2,zero=3,micro=3", "dp=2,cp=2,zero=3,micro=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

// Of real ranks and on meta: calls, elements and messages, of each kind.
TEST(FsdpKnobMessages, AreThoseThatMetaCounts) {
  for (const char* plain :
       {"dp=3,zero=3,micro=2", "dp=4,zero=3,shard=2", "dp=2,pp=2,zero=3,micro=4", "dp=3,zero=3,micro=2,grad_sync=step"})
    for (const char* knobs : kKnobs) {
      const LayoutSpec layout = parse_layout(std::string(plain) + "," + knobs);
      const Replica::Options o = learning_options(five_blocks(true), layout, Precision::fp32);
      const std::vector<Recorded> real = on_threads(o);
      for (int r = 0; r < layout.ranks(); ++r)
        EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << to_text(layout) << ", rank " << r;
    }
}

struct Calls {
  std::int64_t gathers, gathered, reductions, reduced;
  bool operator==(const Calls&) const = default;
};
Calls calls_of(const char* knobs) {
  const LayoutSpec layout = parse_layout(std::string("dp=4,zero=3") + knobs);
  const Recorded one = on_meta(learning_options(five_blocks(false), layout, Precision::fp32), 0);
  const auto &gathers = one.sent.at({CommOp::all_gather, DType::f32}),
             &sums = one.sent.at({CommOp::reduce_scatter, DType::f32});
  return {gathers[0], gathers[1], sums[0], sums[1]};
}

// Embedding, five blocks, head; four blocks once more for their backward, since the last one stays.
TEST(FsdpKnobMessages, AreAsDerived) {
  const Calls plain = calls_of("");
  EXPECT_EQ(plain.gathers, 7 + 4);
  EXPECT_EQ(plain.reductions, 7);
  // None ahead: nothing stays over the head. Two ahead: one block more does.
  const std::int64_t block = calls_of(",prefetch=0").gathered - plain.gathered;
  EXPECT_GT(block, 0);
  EXPECT_EQ(calls_of(",prefetch=0").gathers, 7 + 5);
  EXPECT_EQ(calls_of(",prefetch=2"), (Calls{7 + 3, plain.gathered - block, 7, plain.reduced}));
  // Two calls for the blocks of a forward, and one for the backward, since the last bundle stays.
  EXPECT_EQ(calls_of(",wrap=3+2"), (Calls{4 + 1, plain.gathered - block, 4, plain.reduced}));
  EXPECT_EQ(calls_of(",wrap=3+2,prefetch=0"), (Calls{4 + 2, plain.gathered + block, 4, plain.reduced}));
  EXPECT_EQ(calls_of(",wrap=1MiB"), (Calls{3, plain.gathered - 4 * block, 3, plain.reduced}));
}

RunSpec knob_run(const std::string& knobs) {
  return resumed_run(five_blocks(true), parse_layout("dp=3,zero=3,micro=2,uneven=on" + knobs));
}

// A checkpoint holds shards of units, whatever went in one call.
TEST(FsdpKnobResume, OneRuleGoesOnFromAnother) {
  for (const auto& [from, to] : {std::pair<const char*, const char*>{"", ",wrap=2+3,prefetch=2"},
                                 {",wrap=1MiB", ""},
                                 {",wrap=2+3", ",wrap=4+1,prefetch=0"}}) {
    const TemporaryFolder folder, unused;
    const TrainedState stayed = train_all(knob_run(from), folder.path());
    const TrainedState went_on = train_all(knob_run(to), unused.path(), folder.path() / step_folder_name(kSavedStep));
    EXPECT_TRUE(went_on == stayed) << from << " to " << to;
  }
}

}  // namespace
}  // namespace lockstep::tests
