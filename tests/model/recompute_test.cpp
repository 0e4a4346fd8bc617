// What each level of recomputation keeps of a block: by its table, by its formula in bytes, and block by block.
#include "model/recompute.h"

#include <gtest/gtest.h>

#include <map>

#include "kept_bytes.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(Recompute, LevelsKeepWhatTheirTableSays) {
  const BlockRecompute none = block_recompute(Recompute::none), elementwise = block_recompute(Recompute::elementwise),
                       projections = block_recompute(Recompute::projections);
  EXPECT_TRUE(none.keeps_norm_outputs() && none.keeps_activation && none.keeps_projections);
  EXPECT_EQ(elementwise.norm_outputs, NormOutputs::by_norm_backward);
  EXPECT_FALSE(elementwise.keeps_activation);
  EXPECT_TRUE(elementwise.keeps_projections);
  EXPECT_EQ(projections.norm_outputs, NormOutputs::before_backward);
  EXPECT_FALSE(projections.keeps_activation || projections.keeps_projections);
}

TEST(Recompute, BlocksAreTheFirstOnesAndOfProjectionsAlone) {
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(recompute_level({Recompute::none, 2}, layer), Recompute::none);
    EXPECT_EQ(recompute_level({Recompute::elementwise, 2}, layer), Recompute::elementwise);
    EXPECT_EQ(recompute_level({Recompute::projections, 0}, layer), Recompute::projections);
    EXPECT_EQ(recompute_level({Recompute::projections, 2}, layer),
              layer < 2 ? Recompute::projections : Recompute::elementwise);
  }
}

// The formulas of model/recompute.h.
TEST(Recompute, OfALlamaBlockKeepsTheBytesOfItsFormula) {
  ModelSpec s = tiny_specs()[0].spec;
  s.layers = 3;
  const std::int64_t B = 2, T = 32, C = s.width, H = s.heads, K = s.kv_heads, D = s.head_width, F = s.ffn_width;
  const std::int64_t none = 4 * 2 * C + 2 * 4 + 2 * (H + 2 * K) * D + 2 * H * D + 4 * H + 6 * F;
  const std::int64_t elementwise = none - 2 * 2 * C - 2 * F;
  const std::int64_t projections = elementwise - 2 * (H + 2 * K) * D - 4 * F;
  const auto expect = [&](const MemorySpec& memory, const std::vector<std::int64_t>& blocks) {
    Execution how;
    how.memory = memory;
    const Model model(s, B, T, DType::bf16, how);
    for (int u = 1; u <= 3; ++u)
      EXPECT_EQ(kept_bytes(model, u), B * T * blocks[static_cast<std::size_t>(u - 1)])
          << name_of(memory.recompute) << " " << memory.recompute_blocks << ", block " << u - 1;
  };
  expect({Recompute::none}, {none, none, none});
  expect({Recompute::elementwise}, {elementwise, elementwise, elementwise});
  expect({Recompute::projections}, {projections, projections, projections});
  expect({Recompute::projections, 2}, {projections, projections, elementwise});
}

// Of every family: what is recomputed has a slot of the same shape that begins in the input phase, and what is kept
// none.
TEST(Recompute, GivesWhatItRecomputesASlotInTheInputPhase) {
  for (const NamedSpec& named : tiny_specs())
    for (const Recompute level : {Recompute::none, Recompute::elementwise, Recompute::projections}) {
      Execution how;
      how.memory.recompute = level;
      const Model model(named.spec, 2, 8, DType::f32, how);
      std::map<std::string, const SlotSpec*> slots;  // of the first block
      for (const SlotSpec& s : model.slots().all())
        if (s.born.unit == 1) slots[s.name] = &s;
      std::map<std::string, bool> keeps{{"normed1", level == Recompute::none},
                                        {"normed2", level == Recompute::none},
                                        {"active", level == Recompute::none},
                                        {"inner", level != Recompute::projections},
                                        {"qkv", level != Recompute::projections}};
      if (named.spec.qk_norm) keeps["turned"] = level != Recompute::projections;
      for (const auto& [name, is_kept] : keeps) {
        const std::string what = named.name + ", " + std::string(name_of(level)) + ": " + name;
        ASSERT_TRUE(slots.contains(name)) << what;
        EXPECT_EQ(slots[name]->last.phase != Phase::forward, is_kept) << what;
        ASSERT_EQ(slots.contains(name + " again"), !is_kept) << what;
        if (is_kept) continue;
        const SlotSpec& again = *slots[name + " again"];
        EXPECT_EQ(again.born, (Moment{1, Phase::input})) << what;
        EXPECT_EQ(again.shape, slots[name]->shape) << what;
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
