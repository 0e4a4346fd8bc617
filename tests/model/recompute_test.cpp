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
                       projections = block_recompute(Recompute::projections), full = block_recompute(Recompute::full);
  EXPECT_TRUE(none.keeps_norm_outputs() && none.keeps_activation && none.keeps_projections);
  EXPECT_EQ(elementwise.norm_outputs, NormOutputs::by_norm_backward);
  EXPECT_FALSE(elementwise.keeps_activation);
  EXPECT_TRUE(elementwise.keeps_projections);
  EXPECT_EQ(projections.norm_outputs, NormOutputs::before_backward);
  EXPECT_FALSE(projections.keeps_activation || projections.keeps_projections);
  EXPECT_FALSE(none.forward_again || elementwise.forward_again || projections.forward_again);
  EXPECT_TRUE(full.forward_again);
}

TEST(Recompute, BlocksAreTheFirstOnesAndOfProductsAlone) {
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(recompute_level({Recompute::none, 2}, layer), Recompute::none);
    EXPECT_EQ(recompute_level({Recompute::elementwise, 2}, layer), Recompute::elementwise);
    EXPECT_EQ(recompute_level({Recompute::projections, 0}, layer), Recompute::projections);
    EXPECT_EQ(recompute_level({Recompute::projections, 2}, layer),
              layer < 2 ? Recompute::projections : Recompute::elementwise);
    EXPECT_EQ(recompute_level({Recompute::full, 3}, layer), layer < 3 ? Recompute::full : Recompute::elementwise);
  }
}

TEST(Recompute, BlocksMayBeEveryNth) {
  const auto chosen = [](const MemorySpec& memory, std::span<const int> stage_of = {}) {
    std::string blocks;
    for (std::int64_t layer = 0; layer < 7; ++layer)
      blocks += recompute_level(memory, layer, stage_of) == Recompute::full ? 'f' : 'e';
    return blocks;
  };
  EXPECT_EQ(chosen({Recompute::full, 0, 1}), "fffffff");
  EXPECT_EQ(chosen({Recompute::full, 0, 2}), "fefefef");
  EXPECT_EQ(chosen({Recompute::full, 0, 3}), "feefeef");
  EXPECT_EQ(chosen({Recompute::full, 4, 2}), "fefeeee");
  // Two stages, of which the first has two chunks.
  const int stage_of[] = {0, 0, 1, 1, 1, 0, 0};
  EXPECT_EQ(chosen({Recompute::full, 0, 1, {{3, 2}}}, stage_of), "ffffefe");
  EXPECT_EQ(chosen({Recompute::full, 0, 1, {{9, 0}}}, stage_of), "ffeeeff");
  EXPECT_EQ(chosen({Recompute::full, 0, 2, {{9, 9}}}, stage_of), "fefeffe");
  EXPECT_EQ(chosen({Recompute::full, 0, 1, {{2}}}), "ffeeeee") << "of one stage";
}

// Of every family, alone and where ranks cut layers or samples between them, with weights that come at once or later: a
// block, or half of one, holds its input and nothing else from its forward to its backward.
TEST(Recompute, FullKeepsABlocksInputAlone) {
  for (const NamedSpec& named : cut_specs())
    for (const int cut : {0, 1, 2, 3, 4})
      for (const auto& [later, halves] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        Execution how{.memory = {.recompute = Recompute::full}, .weights_later = later, .halves = halves};
        if (cut == 1 || cut == 2) how.split = {.rank = 0, .size = 2, .sequence = cut == 2};
        if (cut == 3) how.context = {.rank = 0, .ring = 2};
        if (cut == 4) how.context = {.rank = 0, .heads = 2};
        if (cut > 0 && !heads_divide(named.spec.heads, named.spec.kv_heads, 2)) continue;
        const std::int64_t B = 2, T = 8;
        const Model model(named.spec, B, T, DType::bf16, how);
        const std::string what =
            fmt::format("{}, {}{}{}", named.name, cut, later ? ", later" : "", halves ? ", halves" : "");
        for (int u = 1; u + 1 < model.units(); ++u) {
          const SlotSpec& x = model.slots().all()[static_cast<std::size_t>(model.between(u).x)];
          EXPECT_EQ(x.shape.elements(), (cut == 2 ? 1 : 2) * B * T * named.spec.width / 2) << what;
          EXPECT_EQ(kept_bytes(model, u), x.shape.elements() * size_of(x.dtype)) << what << ", unit " << u;
        }
        // And over the list: after the forwards, blocks' inputs live, and what the head has made.
        const StepShape shape = model.step_shape(1);
        const std::vector<Action> actions = serial_step(shape);
        const auto head = static_cast<std::size_t>(model.units() - 1);
        ASSERT_EQ(actions[head].kind, ActionKind::forward) << what;
        for (const LiveSlot& live : live_slots(model.slots(), actions, shape, head)) {
          const SlotSpec& slot = model.slots().all()[static_cast<std::size_t>(live.slot)];
          EXPECT_TRUE(slot.name.starts_with("x.") || slot.born.unit == static_cast<int>(head))
              << what << ": " << slot.name;
        }
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
  expect({Recompute::full}, {2 * C, 2 * C, 2 * C});
  expect({Recompute::full, 0, 2}, {2 * C, elementwise, 2 * C});
}

// Of every family: what is recomputed has a slot of the same shape that begins in the input phase, and what is kept
// none.
TEST(Recompute, GivesWhatItRecomputesASlotInTheInputPhase) {
  for (const NamedSpec& named : tiny_specs())
    for (const Recompute level : kRecomputes) {
      Execution how;
      how.memory.recompute = level;
      const Model model(named.spec, 2, 8, DType::f32, how);
      std::map<std::string, const SlotSpec*> slots;  // of the first block
      for (const SlotSpec& s : model.slots().all())
        if (s.born.unit == 1) slots[s.name] = &s;
      std::map<std::string, bool> keeps{{"normed1", level == Recompute::none}, {"normed2", level == Recompute::none},
                                        {"active", level == Recompute::none},  {"inner", !recomputes_products(level)},
                                        {"qkv", !recomputes_products(level)},  {"attention", level != Recompute::full},
                                        {"lse", level != Recompute::full},     {"mid", level != Recompute::full}};
      if (named.spec.qk_norm) keeps["turned"] = !recomputes_products(level);
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
