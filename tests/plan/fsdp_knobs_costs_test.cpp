// What FSDP's knobs cost is known before: bytes and messages of real ranks are those that meta counted, and gathered
// weights take the room that the rules say.
#include <gtest/gtest.h>

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
                              ",wrap=3+3,prefetch=2", ",wrap=1+5,prefetch=0,overlap=off"})
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

TEST(GatheredRoom, TakesAsManyUnitsAsFit) {
  for (const char* layout : {"dp=4,zero=3", "dp=2,pp=2,zero=3,micro=4", "dp=3,zero=3,wrap=2+2+2,prefetch=2"}) {
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
