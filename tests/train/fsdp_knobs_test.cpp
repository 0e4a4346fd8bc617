// FSDP's knobs: how far ahead weights are gathered, and how much of the model in one call, change messages and memory
// and not a bit of what is learned.
#include <gtest/gtest.h>

#include <set>

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
                              "wrap=halves",
                              "wrap=halves,prefetch=0",
                              "wrap=halves,prefetch=3,overlap=off",
                              "wrap=halves,reshard=never",
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
    for (const char* knobs : {",wrap=2+3,prefetch=2", ",wrap=halves"}) {
      o.layout = parse_layout(plain + knobs);
      o.how.memory = {.gathered = 1};
      expect_equal(learn(o, 2), without, to_text(o.layout) + " with room");
      o.how.memory = {.recompute = Recompute::full};
      expect_equal(learn(o, 2), without, to_text(o.layout) + " with recomputation");
    }
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

// Of any model, also where a branch stands by itself before it joins the residual (dropout, tp), and in bf16, where
// that rounds.
TEST(Halves, OfEveryFamilyLearnWhatBlocksAndDdpLearn) {
  std::set<std::string> split;
  for (const NamedSpec& model : cut_specs()) {
    const bool tp = model.spec.heads % 2 == 0 && model.spec.kv_heads % 2 == 0;
    if (tp) split.insert(std::string(name_of(model.spec.family)));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const std::string ranks = tp ? "dp=2,tp=2,micro=2" : "dp=3,micro=2";
      const auto with = [&](const std::string& keys) {
        Replica::Options o = learning_options(model.spec, parse_layout(ranks + keys), precision);
        o.T = 8;
        return learn(o, 2);
      };
      const Learned ddp = with(",grad_sync=micro"), halves = with(",zero=3,wrap=halves");
      expect_equal(halves, ddp, model.name + " and ddp");
      expect_equal(halves, with(",zero=3"), model.name + " and blocks");
    }
  }
  EXPECT_GE(split.size(), 4U);
}

// What a layer says of the halves of a block's phases does not hold where a half has phases of its own.
TEST(Halves, HaveActivationsThatLiveForWholePhases) {
  for (const NamedSpec& model : tiny_specs()) {
    const Model halves(model.spec, 2, 8, DType::f32, {.weights_later = true, .halves = true});
    for (const SlotSpec& slot : halves.slots().all()) {
      EXPECT_EQ(slot.born_half, Half::first) << model.name << ": " << slot.name;
      EXPECT_EQ(slot.last_half, Half::second) << model.name << ": " << slot.name;
    }
  }
}

MemorySpec offloading(Offload where) {
  return {.offload_optimizer = where, .offload_gradients = where, .offload_parameters = where};
}

TEST(Halves, CombineWithEveryLeverOfMemory) {
  std::vector<std::pair<std::string, MemorySpec>> levers;
  for (const Recompute level : {Recompute::elementwise, Recompute::projections, Recompute::full})
    levers.emplace_back(name_of(level), MemorySpec{.recompute = level});
  levers.emplace_back("every other block", MemorySpec{.recompute = Recompute::full, .recompute_every = 2});
  levers.emplace_back("state on the host", offloading(Offload::host));
  levers.emplace_back("some of it", offloading(Offload::host));
  levers.back().second.offload_share = 0.4;
  levers.emplace_back("parameters on the host, with room",
                      MemorySpec{.gathered = 1, .offload_parameters = Offload::host});
  levers.emplace_back("activations on the host", MemorySpec{.offload_activations = Offload::host});
  levers.emplace_back(
      "two blocks' of them, and full",
      MemorySpec{.recompute = Recompute::full, .offload_activations = Offload::host, .offload_blocks = 2});
  for (const char* plain : {"dp=1,zero=3,micro=3", "dp=3,zero=3,micro=2", "dp=2,pp=2,zero=3,micro=3"}) {
    Replica::Options o = learning_options(five_blocks(true), parse_layout(plain), Precision::bf16);
    const Learned without = learn(o, 2);
    for (const char* knobs : {",wrap=halves", ",wrap=halves,prefetch=0"})
      for (const auto& [name, memory] : levers) {
        o.layout = parse_layout(std::string(plain) + knobs);
        o.how.memory = memory;
        expect_equal(learn(o, 2), without, to_text(o.layout) + ", " + name);
      }
  }
}

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
Calls calls_of(const char* knobs, const ModelSpec& spec = five_blocks(false)) {
  const LayoutSpec layout = parse_layout(std::string("dp=4,zero=3") + knobs);
  const Recorded one = on_meta(learning_options(spec, layout, Precision::fp32), 0);
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

// Embedding, ten halves, head; nine halves once more, since the last one stays. A half is sharded by itself: shards are
// padded so.
TEST(FsdpKnobMessages, OfHalvesAreAsDerived) {
  ModelSpec spec = five_blocks(false);
  spec.ffn_width = 71;
  const Model model(spec, 1, 1, DType::f32, {.halves = true});
  ASSERT_EQ(model.units(), 12);
  const Shard shard{.index = 0, .count = 4};
  const auto elements = [&](int unit) { return shard.elements(model.unit(unit).layout().owned()) * 3; };
  const std::int64_t attention = elements(1), feed_forward = elements(2), ends = elements(0) + elements(11);
  EXPECT_NE(attention, feed_forward);
  EXPECT_EQ(calls_of(",wrap=halves", spec),
            (Calls{12 + 9, ends + 10 * attention + 9 * feed_forward, 12, ends + 5 * (attention + feed_forward)}));
  EXPECT_EQ(calls_of(",wrap=halves,prefetch=0", spec),
            (Calls{12 + 10, ends + 10 * (attention + feed_forward), 12, ends + 5 * (attention + feed_forward)}));
}

RunSpec knob_run(const std::string& knobs) {
  return resumed_run(five_blocks(true), parse_layout("dp=3,zero=3,micro=2,uneven=on" + knobs));
}

// A checkpoint holds tensors, whatever was a unit and went in one call.
TEST(FsdpKnobResume, OneRuleGoesOnFromAnother) {
  for (const auto& [from, to] : {std::pair<const char*, const char*>{"", ",wrap=2+3,prefetch=2"},
                                 {",wrap=1MiB", ""},
                                 {",wrap=2+3", ",wrap=4+1,prefetch=0"},
                                 {"", ",wrap=halves"},
                                 {",wrap=halves", ",wrap=1MiB"}}) {
    const TemporaryFolder folder, unused;
    const TrainedState stayed = train_all(knob_run(from), folder.path());
    const TrainedState went_on = train_all(knob_run(to), unused.path(), folder.path() / step_folder_name(kSavedStep));
    EXPECT_TRUE(went_on == stayed) << from << " to " << to;
  }
}

}  // namespace
}  // namespace lockstep::tests
