// What FP8 products take of memory: forms of weights and rows in one place for half a phase, and no more than bf16
// keeps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "kept_bytes.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

ModelSpec in_sixteens(ModelSpec spec) {
  spec.width = 32;
  spec.heads = 4;
  spec.kv_heads = spec.family == Family::gpt2 ? 4 : 2;
  spec.head_width = 8;
  spec.ffn_width = 48;
  spec.max_positions = 128;
  return spec;
}

Model model_of(const ModelSpec& spec, std::int64_t tokens, Recompute recompute, bool fp8, bool halves = false) {
  return {spec, 1, tokens, DType::bf16, {.memory = {.recompute = recompute}, .halves = halves, .fp8 = fp8}};
}

TEST(Fp8Memory, FormsOfWeightsAndRowsHaveOnePlaceInHalfAPhase) {
  for (const NamedSpec& named : tiny_specs())
    for (const Recompute recompute :
         {Recompute::none, Recompute::elementwise, Recompute::projections, Recompute::full}) {
      const ModelSpec spec = in_sixteens(named.spec);
      const Model model = model_of(spec, 64, recompute, true);
      std::map<std::tuple<int, int, int, bool>, int> seen;
      for (const SlotSpec& slot : model.slots().all()) {
        const bool weights = slot.name.find("weights in fp8, half") == 0,
                   rows = slot.name.find("rows in fp8, half") == 0;
        if (!weights && !rows) continue;
        EXPECT_EQ(slot.born, slot.last) << slot.name;
        EXPECT_EQ(slot.born_half, slot.last_half) << slot.name;
        const auto place =
            std::tuple(slot.born.unit, static_cast<int>(slot.born.phase), static_cast<int>(slot.born_half), weights);
        EXPECT_EQ(++seen[place], 1) << slot.name << ", " << named.name;
        if (!weights) continue;
        const std::int64_t inner = (spec.mlp == MlpKind::swiglu ? 2 : 1) * spec.ffn_width,
                           qkv = 32 + 2 * 8 * spec.kv_heads;
        const bool feed_forward = (slot.born.phase == Phase::forward) == (slot.born_half == Half::second);
        const bool both = recompute == Recompute::full && feed_forward && slot.born.phase == Phase::input;
        EXPECT_EQ(slot.shape.elements(), 32 * (both ? std::max(inner, qkv) : feed_forward ? inner : qkv)) << slot.name;
      }
      EXPECT_GE(seen.size(), 8u) << named.name;
    }
}

// Of few tokens weights would take more than inputs save, and are not kept.
TEST(Fp8Memory, WithoutRecomputationNoMoreIsKeptThanInBf16) {
  for (const NamedSpec& named : tiny_specs())
    for (const std::int64_t tokens : {16, 64, 80, 96, 128})
      for (const bool halves : {false, true}) {
        const ModelSpec spec = in_sixteens(named.spec);
        const Model fp8 = model_of(spec, tokens, Recompute::none, true, halves),
                    bf16 = model_of(spec, tokens, Recompute::none, false, halves);
        std::int64_t in_fp8 = 0, in_bf16 = 0, forms = 0;
        for (int u = 1; u + 1 < fp8.units(); ++u) in_fp8 += kept_bytes(fp8, u), in_bf16 += kept_bytes(bf16, u);
        for (const SlotSpec& slot : fp8.slots().all()) {
          if (slot.name.find("weights in fp8 turned") != std::string::npos) forms += slot.shape.elements();
          const bool number =
              slot.born.phase == Phase::forward && slot.last.phase != Phase::forward && slot.shape.elements() <= 2;
          if (number) in_fp8 -= slot.shape.elements() * size_of(slot.dtype);
        }
        EXPECT_LE(in_fp8, in_bf16) << named.name << ", " << tokens;
        EXPECT_EQ(forms > 0, tokens >= 96) << named.name << ", " << tokens;
      }
}

TEST(Fp8Memory, WhatIsRecomputedIsKeptInNoForm) {
  for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
    const Model model = model_of(in_sixteens(tiny_specs()[0].spec), 64, recompute, true);
    for (const SlotSpec& slot : model.slots().all())
      EXPECT_FALSE(slot.name.find("in fp8") != std::string::npos && slot.born.phase == Phase::forward &&
                   slot.last.phase != Phase::forward)
          << slot.name;
  }
}

}  // namespace
}  // namespace lockstep::tests
