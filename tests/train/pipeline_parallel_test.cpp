// Cutting the model in depth changes where layers are computed and when, never what is learned.
#include <gtest/gtest.h>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// The tiny models with so many layers that eight stages have some.
std::vector<NamedSpec> models() {
  std::vector<NamedSpec> all = tiny_specs();
  for (NamedSpec& model : all) model.spec.layers = 7;
  return all;
}

std::string words(const NamedSpec& model, const LayoutSpec& layout) { return model.name + ", " + to_text(layout); }

class PipelineParallelOf : public ::testing::TestWithParam<NamedSpec> {};

// What one rank sums is summed in the same order, whatever the schedule: to the bit.
TEST_P(PipelineParallelOf, LearnsTheBitsOfOneRank) {
  const ModelSpec& spec = GetParam().spec;
  for (const int micro : {1, 3, 8}) {
    const Learned one = learn(spec, {.micro = micro}, Precision::fp64);
    const auto same = [&](const LayoutSpec& layout) {
      expect_equal(learn(spec, layout, Precision::fp64), one, words(GetParam(), layout));
    };
    for (const int pp : {1, 2, 3, 4, 8})
      for (const ScheduleKind kind : kScheduleKinds) {
        if (pp * usual_chunks(kind) > spec.layers + 2) continue;
        same({.pp = pp, .schedule = kind, .chunks = usual_chunks(kind), .micro = micro});
      }
    for (const int pp : {1, 2, 3}) same({.pp = pp, .schedule = ScheduleKind::interleaved, .chunks = 3, .micro = micro});
    same({.pp = 3, .schedule = ScheduleKind::interleaved, .chunks = 1, .micro = micro});
  }
}

TEST_P(PipelineParallelOf, LearnsWhatOneRankLearnsOnAnyMesh) {
  const ModelSpec& spec = GetParam().spec;
  const Learned one = learn(spec, {.micro = 2}, Precision::fp64);
  int turn = 0;
  for (const int pp : {2, 3})
    for (const int tp : {1, 3})
      for (const int zero : {0, 1, 2, 3}) {
        // Every schedule comes to every stage of ZeRO, with tp and without.
        for (int i = 0; i < 2; ++i) {
          const ScheduleKind kind = kScheduleKinds[static_cast<std::size_t>(turn++) % kScheduleKinds.size()];
          LayoutSpec layout{.dp = 2,
                            .pp = pp,
                            .schedule = kind,
                            .chunks = usual_chunks(kind),
                            .tp = tp,
                            .sp = i == 0 ? LayoutSpec::usual_sp(tp) : Switch::off,
                            .micro = 2 + i,
                            .zero = zero};
          layout.grad_sync = LayoutSpec::usual_sync(zero);
          expect_close(learn(spec, layout, Precision::fp64), one, 1e-11, words(GetParam(), layout));
        }
      }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineParallelOf, ::testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

// One layout: schedule and overlap are nothing but an order.
TEST(PipelineParallelBits, DoNotDependOnScheduleOverlapOrCut) {
  for (const NamedSpec& model : models())
    for (const int zero : {0, 1, 3}) {
      LayoutSpec layout{.dp = 2, .pp = 2, .micro = 3, .zero = zero};
      layout.grad_sync = LayoutSpec::usual_sync(zero);
      const Learned plain = learn(model.spec, layout, Precision::fp32);
      const auto same = [&](const LayoutSpec& other) {
        expect_equal(learn(model.spec, other, Precision::fp32), plain, words(model, other));
      };
      for (const ScheduleKind kind : kScheduleKinds)
        for (const Switch overlap : {Switch::on, Switch::off}) {
          LayoutSpec other = layout;
          other.schedule = kind;
          other.chunks = usual_chunks(kind);
          other.overlap = overlap;
          same(other);
        }
      for (const char* stages : {"even", "0+7", "7+0", "2+5"}) {
        LayoutSpec other = layout;
        other.stages = stages;
        same(other);
      }
    }
}

TEST(PipelineParallelBf16, LearnsTheBitsOfOneRank) {
  for (const NamedSpec& model : models()) {
    const Learned one = learn(model.spec, {.micro = 4}, Precision::bf16);
    for (const ScheduleKind kind : kScheduleKinds) {
      const LayoutSpec layout{.pp = 3, .schedule = kind, .chunks = usual_chunks(kind), .micro = 4};
      expect_equal(learn(model.spec, layout, Precision::bf16), one, words(model, layout));
    }
  }
}

TEST(PipelineParallelBits, DoNotDependOnWhatIsComputedAgain) {
  for (const NamedSpec& model : {models().front(), models().back()}) {
    Replica::Options options =
        learning_options(model.spec, {.pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 4}, Precision::fp32);
    const Learned kept = learn(options, 2);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections}) {
      options.how.memory.recompute = recompute;
      expect_equal(learn(options, 2), kept, fmt::format("{}, {}", model.name, name_of(recompute)));
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
