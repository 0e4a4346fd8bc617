// What FSDP's knobs cost is known before: bytes and messages of real ranks are those that meta counted, and gathered
// weights take the room that the rules say.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "plan/comparison.h"
#include "plan/gathered_room.h"
#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

RunSpec knob_costs_run(const std::string& layout, std::int64_t layers = 6) {
  RunSpec spec;
  spec.model = tiny_specs()[1].spec;
  spec.model.layers = layers;
  spec.data.synthetic = SyntheticSpec{.vocabulary = spec.model.vocabulary, .order = 1};
  spec.data.seq = 8;
  spec.train.global_batch = 24;
  spec.train.save_last = false;
  spec.train.save_every = spec.train.eval_every = 0;
  spec.run.threads = 1;
  spec.layout = parse_layout(layout);
  return spec;
}

TEST(FsdpKnobCosts, AreThoseThatMetaCounted) {
  std::vector<LayoutSpec> layouts;
  for (const std::string plain : {"dp=2,zero=3,micro=3", "dp=4,zero=3,micro=2", "dp=4,zero=3,shard=2,grad_sync=step",
                                  "dp=2,pp=2,zero=3,micro=4", "dp=2,cp=2,zero=3"})
    for (const char* knobs : {"", ",prefetch=0", ",prefetch=2", ",prefetch=9", ",wrap=2+4", ",wrap=1MiB",
                              ",wrap=3+3,prefetch=2", ",wrap=1+5,prefetch=0,overlap=off", ",wrap=halves",
                              ",wrap=halves,prefetch=0", ",wrap=halves,prefetch=3,overlap=off"})
      layouts.push_back(parse_layout(plain + knobs));
  const Comparison comparison = compare_costs(knob_costs_run("dp=1"), layouts, {.steps = 1});
  ASSERT_EQ(comparison.layouts.size(), layouts.size());
  for (const ComparedLayout& one : comparison.layouts) {
    EXPECT_TRUE(one.memory_as_planned()) << to_text(one.layout);
    EXPECT_TRUE(one.messages_as_planned()) << to_text(one.layout);
    for (std::size_t r = 0; r < one.ranks.size(); ++r) {
      const Plan plan = plan_run(laid_out(knob_costs_run("dp=1"), one.layout), static_cast<int>(r));
      EXPECT_EQ(one.ranks[r].rows, plan.rows) << to_text(one.layout) << ", rank " << r;
      EXPECT_TRUE(one.ranks[r].messages == plan.messages) << to_text(one.layout) << ", rank " << r;
    }
  }
}

// Blocks of one size, and an embedding and a head that are smaller.
TEST(FsdpKnobCosts, OfGatheredBlocksAreAsManyAsTheRulesSay) {
  RunSpec spec = knob_costs_run("dp=4,zero=3", 8);
  spec.model.tied = false;
  const auto gathered = [&](const std::string& knobs) {
    RunSpec with = spec;
    with.layout = parse_layout("dp=4,zero=3" + knobs);
    return plan_run(with).peak_of(Tag::gathered);
  };
  const std::int64_t block = gathered("") / 2;
  EXPECT_EQ(gathered(",prefetch=1"), 2 * block);
  EXPECT_LT(gathered(",prefetch=0"), 2 * block);
  EXPECT_GE(gathered(",prefetch=0"), block);
  EXPECT_EQ(gathered(",prefetch=2"), 3 * block);
  EXPECT_EQ(gathered(",prefetch=3"), 4 * block);
  EXPECT_EQ(gathered(",wrap=2+2+2+2"), 4 * block);
  EXPECT_EQ(gathered(",wrap=2+2+2+2,prefetch=0"), 2 * block);
  EXPECT_EQ(gathered(",wrap=4+4"), 8 * block);
}

// Of four ranks: halves whose shards need no padding, so that two of them are a block.
RunSpec halves_run(const std::string& knobs) {
  RunSpec spec = knob_costs_run("dp=4,zero=3,micro=2" + knobs, 4);
  spec.model.tied = false;
  spec.model.width = spec.model.ffn_width = 256;
  spec.model.heads = spec.model.kv_heads = 8;
  spec.model.head_width = 32;
  return spec;
}

TEST(Halves, AreGatheredAndReducedApart) {
  const auto peak = [](const std::string& knobs, Tag tag) { return plan_run(halves_run(knobs)).peak_of(tag); };
  const Model model(halves_run("").model, 1, 1, DType::f32, {.halves = true});
  const auto bytes = [&](int unit) { return Shard{.count = 4}.padded(model.unit(unit).layout().owned()) * 4; };
  const std::int64_t attention = bytes(1), feed_forward = bytes(2), half = std::max(attention, feed_forward);
  // A shard begins at a multiple of 256 elements of each half.
  const std::int64_t block = peak("", Tag::gathered) / 2, padding = std::int64_t{2} * 4 * 256 * 4;
  EXPECT_NEAR(static_cast<double>(attention + feed_forward), static_cast<double>(block), static_cast<double>(padding));
  EXPECT_LT(half, block * 2 / 3);
  EXPECT_EQ(peak(",wrap=halves,prefetch=0", Tag::gathered), half);
  EXPECT_EQ(peak(",wrap=halves", Tag::gathered), attention + feed_forward);
  EXPECT_EQ(peak(",wrap=halves,prefetch=3", Tag::gathered), 2 * (attention + feed_forward));
  // Three of two sizes, which take turns: no place of one is another's for long.
  EXPECT_GE(peak(",wrap=halves,prefetch=2", Tag::gathered), attention + feed_forward + half);
  EXPECT_LE(peak(",wrap=halves,prefetch=2", Tag::gathered), 2 * (attention + feed_forward));
  // Gradients on their way: the one that is written, and one sum.
  EXPECT_NEAR(static_cast<double>(peak("", Tag::communication) - peak(",wrap=halves", Tag::communication)),
              static_cast<double>(2 * block - attention - feed_forward), static_cast<double>(padding));
}

// Under any lever of memory, by rows of the ledger.
TEST(Halves, CostWhatMetaCountedUnderEveryLever) {
  std::vector<MemorySpec> levers;
  for (const Recompute level : {Recompute::none, Recompute::elementwise, Recompute::projections, Recompute::full})
    levers.push_back({.recompute = level});
  levers.push_back({.gathered = 1});
  const std::vector<LayoutSpec> layouts{parse_layout("dp=3,zero=3,micro=2,wrap=halves"),
                                        parse_layout("dp=2,pp=2,zero=3,micro=2,wrap=halves,prefetch=0"),
                                        parse_layout("dp=2,tp=3,zero=3,micro=2,wrap=halves")};
  for (const MemorySpec& memory : levers) {
    RunSpec spec = knob_costs_run("dp=1");
    spec.memory = memory;
    for (const ComparedLayout& one : compare_costs(spec, layouts, {.steps = 1}).layouts) {
      EXPECT_TRUE(one.memory_as_planned()) << to_text(one.layout) << ", " << name_of(memory.recompute);
      EXPECT_TRUE(one.messages_as_planned()) << to_text(one.layout) << ", " << name_of(memory.recompute);
      for (std::size_t r = 0; r < one.ranks.size(); ++r) {
        const Plan plan = plan_run(laid_out(spec, one.layout), static_cast<int>(r));
        EXPECT_EQ(one.ranks[r].rows, plan.rows) << to_text(one.layout) << ", rank " << r;
      }
    }
  }
}

// By cost, evenly and by hand; `recompute_stages` counts blocks.
TEST(Halves, OfABlockAreOnOneStage) {
  for (const auto& [stages, first, second] :
       {std::array<const char*, 3>{"cost", "", ""},
        {"even", "embedding to block.1.feed-forward", "block.2.attention to head"},
        {"1+3", "embedding to block.0.feed-forward", "block.1.attention to head"}}) {
    RunSpec spec = halves_run(",wrap=halves");
    spec.layout = parse_layout(std::string("dp=2,pp=2,zero=3,micro=4,wrap=halves,stages=") + stages);
    const std::vector<Plan> plans = plan_stages(spec);
    ASSERT_EQ(plans.size(), 2U);
    EXPECT_TRUE(plans[0].units.ends_with(".feed-forward")) << plans[0].units;
    EXPECT_TRUE(plans[1].units.starts_with("block.")) << plans[1].units;
    EXPECT_NE(plans[1].units.find(".attention to head"), std::string::npos) << plans[1].units;
    if (*first != 0) {
      EXPECT_EQ(plans[0].units, first);
      EXPECT_EQ(plans[1].units, second);
    }
    RunSpec recomputing = spec;
    recomputing.memory = {.recompute = Recompute::full, .recompute_stages = {.counts = {1, 0}}};
    EXPECT_LT(plan_stages(recomputing)[0].peak_of(Tag::activation), plans[0].peak_of(Tag::activation)) << stages;
  }
}

TEST(Halves, AreLinesOfThePicture) {
  RunSpec spec = halves_run(",wrap=halves");
  spec.layout.micro = 1;
  const Plan plan = plan_run(spec);
  EXPECT_EQ(plan.units, "embedding to head");
  EXPECT_NE(plan.picture.find("block.0.attention     "), std::string::npos) << plan.picture;
  EXPECT_NE(plan.picture.find("block.3.feed-forward  "), std::string::npos) << plan.picture;
}

TEST(GatheredRoom, TakesAsManyUnitsAsFit) {
  for (const char* layout :
       {"dp=4,zero=3", "dp=2,pp=2,zero=3,micro=4", "dp=3,zero=3,wrap=2+2+2,prefetch=2", "dp=4,zero=3,wrap=halves"}) {
    RunSpec spec = knob_costs_run(layout);
    spec.model.width = 256;  // a block of more than a MiB
    spec.model.ffn_width = 1024;
    spec.model.heads = spec.model.kv_heads = 8;
    spec.model.head_width = 32;
    const auto peak = [&](std::int64_t room) {
      RunSpec with = spec;
      with.memory.gathered = room;
      return fullest(plan_stages(with)).peak;
    };
    const std::int64_t least = peak(0), most = peak(1 << 20);
    ASSERT_LT(least, most) << layout;
    std::set<std::int64_t> chosen;
    for (int i = 0; i <= 8; ++i) {
      const std::int64_t available = least + (most - least) * i / 8;
      RunSpec with = spec;
      with.memory.gathered = kGatheredAuto;
      resolve_gathered(with, available);
      chosen.insert(with.memory.gathered);
      EXPECT_LE(peak(with.memory.gathered), available) << layout;
      std::int64_t next = with.memory.gathered;  // the next larger room that changes anything
      while (next < 1000 && peak(next) == peak(with.memory.gathered)) ++next;
      if (next < 1000) {
        EXPECT_GT(peak(next), available) << layout;
      }
    }
    EXPECT_GE(chosen.size(), spec.layout.pp > 1 || spec.layout.prefetch > 1 ? 2U : 4U) << layout;
    RunSpec none = spec;
    none.memory.gathered = kGatheredAuto;
    resolve_gathered(none, least - 1);
    EXPECT_EQ(none.memory.gathered, 0);
  }
}

TEST(GatheredRoom, LeavesANumberAsItIs) {
  RunSpec spec = knob_costs_run("dp=4,zero=3");
  spec.memory.gathered = 3;
  resolve_gathered(spec, 0);
  EXPECT_EQ(spec.memory.gathered, 3);
}

}  // namespace
}  // namespace lockstep::tests
