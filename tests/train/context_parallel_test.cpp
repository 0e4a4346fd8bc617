// Cutting samples between ranks changes where tokens are, never what is learned.
#include <gtest/gtest.h>

#include <numeric>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Learned learn_long(const ModelSpec& spec, std::int64_t T, LayoutSpec layout, const PrecisionSpec& precision) {
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
    layout.cp_kind = heads == 1 ? kRing : heads == cp ? kUlysses : fmt::format("{}x{}", cp / heads, heads);
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
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}})
    for (const std::int64_t cp : {2, 3, 4, 8})
      for (const LayoutSpec& layout : context_layouts(spec, cp)) {
        const std::int64_t unit = layout.context_split(0).unit(), T = unit * (unit < 10 ? 5 : 3);
        const Learned one = learn_long(spec, T, {}, precision);
        expect_close(learn_long(spec, T, layout, precision), one, tolerance, to_text(layout));
      }
}

INSTANTIATE_TEST_SUITE_P(All, ContextParallelOf, ::testing::ValuesIn(cut_specs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
