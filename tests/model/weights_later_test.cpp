// What a block holds for its weight phase where that comes later: what the products of weights read, and so no more
// than it held for its input phase.
#include <gtest/gtest.h>

#include "model/model.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kBlock = 2;  // with one before it and one after

std::int64_t bytes_of(const SlotSpec& s) { return s.shape.elements() * size_of(s.dtype); }

// The bytes of a block that live from its forward to its input phase, and from that to its weight phase.
struct Held {
  std::int64_t for_input = 0, for_weight = 0;
};

Held held(const ModelSpec& like, const Execution& how) {
  ModelSpec spec = like;
  spec.layers = 3;
  const Model model(spec, 2, 64, DType::bf16, how);
  Held all;
  for (const SlotSpec& s : model.slots().all()) {
    if (s.last.unit != kBlock) continue;
    if (s.born.phase == Phase::forward && s.last.phase != Phase::forward) all.for_input += bytes_of(s);
    if (s.born.phase != Phase::weight && s.last.phase == Phase::weight) all.for_weight += bytes_of(s);
  }
  return all;
}

TEST(WeightsLater, HoldNoMoreThanTheForwardKept) {
  for (const NamedSpec& named : cut_specs())
    for (const bool cut : {false, true}) {
      Execution how{.weights_later = true};
      if (cut) how.split = {.rank = 0, .size = 2, .sequence = true};
      if (cut && !heads_divide(named.spec.heads, named.spec.kv_heads, 2)) continue;
      const Held later = held(named.spec, how);
      how.weights_later = false;
      const Held at_once = held(named.spec, how);
      // A vector in the accumulator type for each norm's weight and bias, of which there are at most four of C and two
      // of D, padding left out.
      const std::int64_t vectors = 4 * (4 * named.spec.width + 2 * named.spec.head_width);
      EXPECT_LE(later.for_weight, later.for_input + vectors) << named.name << (cut ? ", cut" : "");
      EXPECT_LE(later.for_input, at_once.for_input) << named.name;
      EXPECT_LT(later.for_weight, at_once.for_weight) << named.name << (cut ? ", cut" : "");
    }
}

// Elementwise outputs that are computed again are made by the input phase, and wait for the weights then.
TEST(WeightsLater, HoldWhatWasComputedAgainAsIfItHadBeenKept) {
  for (const NamedSpec& named : tiny_specs()) {
    Execution how{.weights_later = true};
    const std::int64_t kept = held(named.spec, how).for_weight;
    how.memory.recompute = Recompute::elementwise;
    EXPECT_EQ(held(named.spec, how).for_weight, kept) << named.name;
    for (const Recompute level : {Recompute::projections, Recompute::full}) {
      how.memory.recompute = level;
      EXPECT_EQ(held(named.spec, how).for_weight, kept) << named.name << ", " << name_of(level);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
