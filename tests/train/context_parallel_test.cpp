// Cutting samples between ranks changes where tokens are, never what is learned.
#include <gtest/gtest.h>

#include <map>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Learned learn_context_parallel(const ModelSpec& spec, std::int64_t T, const LayoutSpec& layout,
                               const PrecisionSpec& precision) {
  Replica::Options options = learning_options(spec, layout, precision);
  options.B = 6;
  options.T = T;
  return learn(options, 2);
}

// Both kinds, all their mixtures, and both orders, wherever the heads allow it.
std::vector<LayoutSpec> context_layouts(const ModelSpec& spec, std::int64_t cp) {
  std::vector<LayoutSpec> all;
  for (std::int64_t heads = 1; heads <= cp; ++heads) {
    if (cp % heads != 0 || !heads_divide(spec.heads, spec.kv_heads, heads)) continue;
    LayoutSpec layout{.cp = cp};
    layout.cp_kind = heads == 1 ? kRing : heads == cp ? kUlysses : CpKind::of_factors(cp / heads, heads);
    all.push_back(layout);
    if (heads == cp) continue;
    all.push_back(layout);
    all.back().cp_order = CpOrder::plain;
  }
  return all;
}

class ContextParallelOf : public ::testing::TestWithParam<NamedSpec> {};

// Samples are odd multiples of what is asked for.
TEST_P(ContextParallelOf, LearnsWhatOneRankLearns) {
  const ModelSpec& spec = GetParam().spec;
  for (const auto& [precision, tolerances] :
       {std::pair{Precision::fp64, kCloseInDouble}, std::pair{Precision::fp32, kCloseInSingle}}) {
    std::map<std::int64_t, Learned> alone;  // by T
    for (std::int64_t cp = 2; cp <= 8; ++cp)
      for (const LayoutSpec& layout : context_layouts(spec, cp)) {
        const std::int64_t unit = layout.context_split(0).multiple(), T = unit * (unit < 10 ? 5 : 3);
        if (!alone.contains(T)) alone[T] = learn_context_parallel(spec, T, {}, precision);
        expect_close(learn_context_parallel(spec, T, layout, precision), alone[T], tolerances, to_text(layout));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContextParallelOf, ::testing::ValuesIn(cut_specs()),
                         [](const auto& info) { return info.param.name; });

// Models whose heads two ranks can exchange, and cuts of them: a ring, a ring of exchanged heads, heads alone.
std::vector<LayoutSpec> some_cuts() {
  std::vector<LayoutSpec> all(3, LayoutSpec{.cp = 4, .micro = 2});
  all[1].cp_kind = CpKind::of_factors(2, 2);
  all[2].cp_kind = kUlysses;
  return all;
}

// What keeps the order of sums keeps every bit.
TEST(ContextParallelBits, DoNotDependOnOverlapStateStagesOrWhatIsComputedAgain) {
  for (const NamedSpec& model : {cut_specs()[8], cut_specs()[13], cut_specs()[15]})
    for (LayoutSpec layout : some_cuts()) {
      Replica::Options options = learning_options(model.spec, layout, Precision::fp32);
      options.B = 6;
      options.T = 24;
      const Learned plain = learn(options, 2);
      const auto same = [&](const std::string& what) {
        expect_equal(learn(options, 2), plain, model.name + ", " + to_text(options.layout) + what);
      };
      for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
        options.how.memory.recompute = recompute;
        same(fmt::format(", {}", name_of(recompute)));
      }
      options.how.memory.recompute = Recompute::none;
      options.layout.overlap = Switch::off;
      same("");
      options.layout.overlap = Switch::on;
      options.layout.pp = 2;
      same("");
      options.layout.pp = 1;
      for (const int zero : {1, 2, 3}) {
        options.layout.zero = zero;
        same("");
      }
    }
}

TEST(ContextParallelBf16, LosesLittle) {
  for (const NamedSpec& model : {cut_specs()[8], cut_specs()[14]}) {
    const Learned one = learn_context_parallel(model.spec, 24, {}, Precision::bf16);
    for (const LayoutSpec& layout : some_cuts()) {
      const Learned cut = learn_context_parallel(model.spec, 24, layout, Precision::bf16);
      for (std::size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(cut.losses[step], one.losses[step], 5e-3) << model.name << ", " << to_text(layout);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
