// Cutting the model in depth changes where layers are computed and when, never what is learned.
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/pipeline_layouts.h"

namespace lockstep::tests {
namespace {

std::string words(const NamedSpec& model, const LayoutSpec& layout) { return model.name + ", " + to_text(layout); }

// Every so many of a list, from another one on each time: all come up over the models. `make test-slow` has them all.
template <class Visit>
void sample(const std::vector<LayoutSpec>& layouts, std::size_t every, std::size_t& turn, Visit&& visit) {
  std::size_t i = turn++ % every;
  for (; i < layouts.size(); i += every) visit(layouts[i]);
}

class PipelineParallelOf : public ::testing::TestWithParam<std::size_t> {};

// What one rank sums is summed in the same order, whatever the schedule: to the bit.
TEST_P(PipelineParallelOf, LearnsTheBitsOfOneRank) {
  const NamedSpec model = deep_specs()[GetParam()];
  std::size_t turn = GetParam();
  for (const int micro : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const Learned one = learn_pipelined(model.spec, {.micro = micro}, Precision::fp64);
    sample(pipelines(model.spec, micro), 12, turn, [&](const LayoutSpec& layout) {
      expect_equal(learn_pipelined(model.spec, layout, Precision::fp64), one, words(model, layout));
    });
  }
}

TEST_P(PipelineParallelOf, LearnsWhatOneRankLearnsOnAnyMesh) {
  const NamedSpec model = deep_specs()[GetParam()];
  std::size_t turn = GetParam();
  for (const int micro : {1, 3, 4}) {
    const Learned one = learn_pipelined(model.spec, {.micro = micro}, Precision::fp64);
    sample(meshes(model.spec, micro), 16, turn, [&](const LayoutSpec& layout) {
      expect_close(learn_pipelined(model.spec, layout, Precision::fp64), one, 1e-11, words(model, layout));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineParallelOf, ::testing::Range(std::size_t{0}, deep_specs().size()),
                         [](const auto& info) { return deep_specs()[info.param].name; });

// One layout: schedule and overlap are nothing but an order.
TEST(PipelineParallelBits, DoNotDependOnScheduleOverlapOrCut) {
  for (const NamedSpec& model : {deep_specs()[0], deep_specs()[1], deep_specs()[7]})
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
      if (zero == 3) {
        LayoutSpec kept = layout;
        kept.reshard = Reshard::never;
        same(kept);
      }
      for (const char* stages : {"even", "0+7", "7+0", "2+5"}) {
        LayoutSpec other = layout;
        other.stages = StageRule::parse(stages).value();
        same(other);
      }
    }
}

// Forwards alone keep other micro-batches in flight than steps do.
TEST(PipelineEvaluation, GivesTheLogitsOfOneRank) {
  const ModelSpec spec = deep_specs().front().spec;
  const auto logits_of = [&](const LayoutSpec& layout) {
    Replica::Options o = learning_options(spec, layout, Precision::fp64);
    o.B = 16;
    std::vector<double> logits(static_cast<std::size_t>(o.B * o.T * spec.vocabulary));
    run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> group) {
      CpuDevice cpu;
      Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
      replica.init_weights();
      const TokenBatch batch = random_batch(o, 3);
      std::vector<double> mine(logits.size());
      replica.evaluate(batch.tokens, batch.targets, mine);
      if (group->rank() == 0) logits = mine;
    });
    return logits;
  };
  for (const int micro : {4, 8}) {
    const std::vector<double> one = logits_of({.micro = micro});
    for (const int pp : {2, 3})
      for (const ScheduleKind kind : kScheduleKinds)
        for (int again = 0; again < 4; ++again) {
          const LayoutSpec layout{.pp = pp, .schedule = kind, .chunks = usual_chunks(kind), .micro = micro};
          EXPECT_TRUE(logits_of(layout) == one) << to_text(layout);
        }
  }
}

TEST(PipelineParallelBf16, LearnsTheBitsOfOneRank) {
  for (const NamedSpec& model : {deep_specs()[0], deep_specs()[1], deep_specs()[5], deep_specs()[7]}) {
    for (const StateType state : kStateTypes) {
      const PrecisionSpec precision(Precision::bf16, StateType::full, state, state);
      const Learned one = learn(model.spec, {.micro = 4}, precision);
      for (const ScheduleKind kind : kScheduleKinds) {
        const LayoutSpec layout{.pp = 3, .schedule = kind, .chunks = usual_chunks(kind), .micro = 4};
        expect_equal(learn(model.spec, layout, precision), one, words(model, layout));
      }
    }
  }
}

// What is held for a weight step is summed apart from the gradient, in full: added to one of 16 bits it rounds once.
TEST(PipelineParallelBf16, GradientsOf16BitsAreThoseOfOneRank) {
  for (const NamedSpec& model : {deep_specs()[0], deep_specs()[5], deep_specs()[7]})
    for (const std::int64_t tp : {1, 2}) {
      if (!heads_divide(model.spec.heads, model.spec.kv_heads, tp)) continue;
      const auto learned = [&](ScheduleKind kind, std::int64_t pp) {
        Replica::Options o = learning_options(
            model.spec,
            {.pp = pp, .schedule = kind, .chunks = usual_chunks(kind), .tp = tp, .sp = Switch::on, .micro = 4},
            Precision::bf16);
        if (tp == 1) o.layout.sp = Switch::off;
        o.precision.gradients = StateType::bf16;
        return learn(o, 2);
      };
      const Learned one = learned(ScheduleKind::one_f_one_b, 1);
      for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::zb_v})
        expect_equal(learned(kind, 2), one, fmt::format("{}, {}, tp={}", model.name, name_of(kind), tp));
    }
}

TEST(PipelineParallelBits, DoNotDependOnWhatIsComputedAgain) {
  for (const NamedSpec& model : {deep_specs().front(), deep_specs()[7]}) {
    Replica::Options options =
        learning_options(model.spec, {.pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 4}, Precision::fp32);
    const Learned kept = learn(options, 2);
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      options.how.memory.recompute = recompute;
      expect_equal(learn(options, 2), kept, fmt::format("{}, {}", model.name, name_of(recompute)));
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
