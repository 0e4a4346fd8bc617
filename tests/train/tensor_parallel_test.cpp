// Cutting layers between ranks changes where they are computed, never what is learned.
#include <gtest/gtest.h>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// The tiny models, odd in everything (6 heads, 3 key/value heads, vocabulary 37, feed-forward 29), ones with other
// heads, and a wider one.
std::vector<NamedSpec> cut_and_odd_specs() {
  std::vector<NamedSpec> all = cut_specs();
  NamedSpec odd = tiny_specs()[0];
  odd.name = "odd";
  odd.spec.width = odd.spec.ffn_width = 120;
  odd.spec.head_width = 20;
  odd.spec.vocabulary = 507;
  all.push_back(odd);
  return all;
}

Learned learn_tensor_parallel(const ModelSpec& spec, const LayoutSpec& layout, Precision precision) {
  Replica::Options options = learning_options(spec, layout, precision);
  options.T = 24;  // to be cut by tokens too
  return learn(options, 2);
}

class TensorParallelOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(TensorParallelOf, LearnsWhatOneRankLearns) {
  const ModelSpec& spec = GetParam().spec;
  for (const auto& [precision, tolerances] :
       {std::pair{Precision::fp64, kCloseInDouble}, std::pair{Precision::fp32, kCloseInSingle}}) {
    const Learned one = learn_tensor_parallel(spec, {}, precision);
    for (const int tp : {2, 3, 4, 6, 8}) {
      if (!heads_divide(spec.heads, spec.kv_heads, tp)) continue;
      for (const Switch sp : {Switch::off, Switch::on})
        for (const int chunks : {1, 4}) {
          const LayoutSpec layout{.tp = tp, .sp = sp, .tp_chunks = chunks};
          expect_close(learn_tensor_parallel(spec, layout, precision), one, tolerances, to_text(layout));
        }
    }
  }
}

TEST_P(TensorParallelOf, LearnsWhatOneRankLearnsWithDataParallel) {
  const ModelSpec& spec = GetParam().spec;
  const Learned one = learn_tensor_parallel(spec, {}, Precision::fp64);
  for (const int tp : {2, 3}) {
    if (!heads_divide(spec.heads, spec.kv_heads, tp)) continue;
    for (const Switch sp : {Switch::off, Switch::on})
      for (const LayoutSpec& layout : {LayoutSpec{.dp = 2, .tp = tp, .sp = sp, .micro = 3},
                                       {.dp = 3, .tp = tp, .sp = sp, .zero = 1},
                                       {.dp = 2, .tp = tp, .sp = sp, .micro = 2, .zero = 2},
                                       {.dp = 3, .tp = tp, .sp = sp, .micro = 2, .zero = 3},
                                       {.dp = 4, .tp = tp, .sp = sp, .zero = 3, .shard = 2}})
        expect_close(learn_tensor_parallel(spec, layout, Precision::fp64), one, 1e-11, to_text(layout));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelOf, ::testing::ValuesIn(cut_and_odd_specs()),
                         [](const auto& info) { return info.param.name; });

// What keeps the order of sums keeps every bit.
TEST(TensorParallelBits, DoNotDependOnOverlapOrOnHowStateIsCut) {
  for (const NamedSpec& model : {cut_and_odd_specs().front(), cut_and_odd_specs()[15], cut_and_odd_specs()[5]})
    for (const Switch sp : {Switch::off, Switch::on}) {
      LayoutSpec layout{.dp = 2, .tp = model.spec.heads == 8 ? 4 : 3, .sp = sp, .micro = 2};
      const Learned plain = learn_tensor_parallel(model.spec, layout, Precision::fp32);
      layout.overlap = Switch::off;
      expect_equal(learn_tensor_parallel(model.spec, layout, Precision::fp32), plain, to_text(layout));
      layout.overlap = Switch::on;
      for (const int zero : {1, 2, 3}) {
        layout.zero = zero;
        layout.grad_sync = GradSync::step;
        expect_equal(learn_tensor_parallel(model.spec, layout, Precision::fp32), plain, to_text(layout));
      }
    }
}

TEST(TensorParallelBits, DoNotDependOnWhatIsComputedAgain) {
  for (const NamedSpec& model : {cut_and_odd_specs().front(), cut_and_odd_specs()[5], cut_and_odd_specs()[7]})
    for (const Switch sp : {Switch::off, Switch::on}) {
      Replica::Options options = learning_options(model.spec, {.dp = 2, .tp = 3, .sp = sp, .zero = 3}, Precision::fp32);
      options.T = 24;
      const Learned kept = learn(options, 2);
      for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
        options.how.memory.recompute = recompute;
        expect_equal(learn(options, 2), kept, fmt::format("{}, {}", model.name, name_of(recompute)));
      }
    }
}

TEST(TensorParallelBf16, LosesLittle) {
  for (const NamedSpec& model : {cut_and_odd_specs().front(), cut_and_odd_specs()[6]}) {
    const Learned one = learn_tensor_parallel(model.spec, {}, Precision::bf16);
    for (const Switch sp : {Switch::off, Switch::on}) {
      const LayoutSpec layout{.tp = 3, .sp = sp};
      const Learned cut = learn_tensor_parallel(model.spec, layout, Precision::bf16);
      for (std::size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(cut.losses[step], one.losses[step], 5e-3) << model.name << ", " << to_text(layout);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
