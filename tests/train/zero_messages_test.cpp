// What ZeRO sends: the recorder of real ranks, the recorder on meta, and the theory (docs/zero.md) are one.
#include <gtest/gtest.h>

#include <numeric>

#include "spec/layout/shard.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Replica::Options zero_options(const ModelSpec& spec, const LayoutSpec& layout, std::int64_t samples) {
  return {.spec = spec, .B = samples, .T = 9, .layout = layout, .seed = 5};
}

ModelSpec deeper_model(bool tied, int layers = 4) {
  ModelSpec spec = tiny_specs()[tied ? 1 : 0].spec;
  spec.layers = layers;
  return spec;
}

TEST(ZeroMessages, MetaCountsWhatRanksSend) {
  for (const bool tied : {false, true})
    for (const int stage : {0, 1, 2, 3})
      for (const GradSync sync : {GradSync::step, GradSync::micro})
        for (const auto& [ranks, shard] : {std::pair{2, 0}, {3, 0}, {5, 0}, {6, 2}, {8, 4}}) {
          LayoutSpec layout{.dp = ranks, .micro = 2, .zero = stage, .grad_sync = sync, .uneven = Switch::on};
          if (stage > 0) layout.shard = shard;
          const Replica::Options o = zero_options(deeper_model(tied), layout, 22);
          const std::vector<Recorded> real = on_threads(o);
          for (int r = 0; r < ranks; ++r)
            EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << to_text(layout) << ", rank " << r;
        }
}

// Elements that a rank sends of each unit's weights or gradients when all of it goes round once: (N-1)/N of them,
// padded to equal parts.
struct Theory {
  explicit Theory(const Recorded& recorded, std::int64_t ranks) {
    const Shard cut{.index = 0, .count = ranks};
    for (const std::int64_t owned : recorded.owned) once.push_back(cut.padded(owned) / ranks * (ranks - 1));
    all = std::accumulate(once.begin(), once.end(), std::int64_t{0});
    blocks = all - once.front() - once.back();
  }
  std::vector<std::int64_t> once;
  std::int64_t all, blocks;
};

TEST(ZeroMessages, AreWhatTheTheorySays) {
  for (const std::int64_t ranks : {2, 3, 8, 64, 1000})
    for (const std::int64_t micro : {1, 2, 5}) {
      const auto recorded = [&](LayoutSpec layout) {
        layout.dp = ranks;
        layout.micro = micro;
        return on_meta(zero_options(deeper_model(false), layout, ranks * micro), 0);
      };
      const auto gathered = [](const Recorded& one) { return one.elements(CommOp::all_gather, DType::f32); };
      const auto scattered = [](const Recorded& one) { return one.elements(CommOp::reduce_scatter, DType::f32); };
      const Theory theory(recorded({}), ranks);
      // Once a step: a sum is scattered and, where weights are whole, what was updated is published.
      for (const int stage : {1, 2}) {
        const Recorded one = recorded({.zero = stage, .grad_sync = GradSync::step});
        EXPECT_EQ(scattered(one), theory.all);
        EXPECT_EQ(gathered(one), theory.all);
        EXPECT_EQ(one.elements(CommOp::all_reduce, DType::f32), 0);
      }
      for (const int stage : {1, 2}) {
        const Recorded one = recorded({.zero = stage, .grad_sync = GradSync::micro});
        EXPECT_EQ(scattered(one), micro * theory.all);
        EXPECT_EQ(gathered(one), theory.all);
      }
      // Weights: all of them for a forward. For a backward the blocks: the embedding's reads none, the head's comes at
      // once. The last block stays whole over the head, and the first from one micro-batch's backward to the next
      // forward.
      const std::int64_t first = theory.once[1], last = theory.once[theory.once.size() - 2];
      const std::int64_t forwards = micro * theory.all - (micro - 1) * first;
      const std::int64_t backwards = micro * (theory.blocks - last);
      const Recorded three = recorded({.zero = 3});
      EXPECT_EQ(scattered(three), micro * theory.all);
      EXPECT_EQ(gathered(three), forwards + backwards) << ranks << " ranks, " << micro;
      EXPECT_EQ(gathered(recorded({.zero = 3, .grad_sync = GradSync::step})), forwards + backwards);
      EXPECT_EQ(scattered(recorded({.zero = 3, .grad_sync = GradSync::step})), theory.all);
      EXPECT_EQ(gathered(recorded({.zero = 3, .reshard = Reshard::never})), forwards);
      EXPECT_EQ(gathered(recorded({.zero = 3, .overlap = Switch::off})), forwards + backwards);
    }
}

// In groups of K the sum of a part goes across the copies too, an all-reduce of Ψ/K.
TEST(ZeroMessages, OfGroupsGoWithinAndAcross) {
  for (const int stage : {1, 2, 3})
    for (const auto& [ranks, group] : {std::pair{8, 2}, {12, 4}, {1000, 8}}) {
      const LayoutSpec layout{.dp = ranks, .zero = stage, .grad_sync = GradSync::step, .shard = group};
      const Recorded one = on_meta(zero_options(deeper_model(false), layout, ranks), 0);
      const Theory theory(one, group);
      EXPECT_EQ(one.elements(CommOp::reduce_scatter, DType::f32), theory.all);
      const std::int64_t part = theory.all / (group - 1), copies = ranks / group;
      if (part % copies == 0) {
        EXPECT_EQ(one.elements(CommOp::all_reduce, DType::f32), 2 * part / copies * (copies - 1));
      }
      EXPECT_GT(one.elements(CommOp::all_reduce, DType::f32), 0);
    }
}

// A tied table is summed apart where micro-batches are, and gathered for both ends.
TEST(ZeroMessages, OfATiedTable) {
  const int ranks = 4;
  const auto recorded = [&](const LayoutSpec& layout) {
    return on_meta(zero_options(deeper_model(true), layout, 8), 3);
  };
  const Recorded step = recorded({.dp = ranks, .micro = 2, .zero = 3, .grad_sync = GradSync::step});
  const Recorded each = recorded({.dp = ranks, .micro = 2, .zero = 3});
  const Recorded never = recorded({.dp = ranks, .micro = 2, .zero = 3, .reshard = Reshard::never});
  const Theory theory(step, ranks);
  const ModelSpec spec = deeper_model(true);
  // The last rank's part of the table is what is left of it: it sends all that is not its own.
  const std::int64_t table = spec.vocabulary * spec.width, part = theory.once[0] / (ranks - 1);
  const std::int64_t own = std::max<std::int64_t>(0, table - (ranks - 1) * part);
  EXPECT_EQ(step.elements(CommOp::reduce_scatter, DType::f32), theory.all);
  EXPECT_EQ(each.elements(CommOp::reduce_scatter, DType::f32), 2 * (theory.all + table - own));
  const std::int64_t last = theory.once[theory.once.size() - 2];
  const std::int64_t forwards = 2 * theory.all - theory.once[1];
  EXPECT_EQ(step.elements(CommOp::all_gather, DType::f32), forwards + 2 * theory.once[0] + 2 * (theory.blocks - last));
  EXPECT_EQ(never.elements(CommOp::all_gather, DType::f32), forwards);
}

}  // namespace
}  // namespace lockstep::tests
