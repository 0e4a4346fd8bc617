// Data parallel: any number of ranks learn what one learns.
#include <gtest/gtest.h>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

class DataParallel : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(DataParallel, LearnsWhatOneRankLearns) {
  std::vector<LayoutSpec> layouts;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const DpKind kind : {DpKind::ddp, DpKind::central}) {
      // 24 samples are not for 5 and 7; two and three micro-batches in turns, where they divide.
      const Switch uneven = kLearningSamples % ranks == 0 ? Switch::off : Switch::on;
      const int micro = ranks == 7 ? 1 : ranks % 2 + (kind == DpKind::ddp ? 2 : 1);
      layouts.push_back({.dp = ranks, .micro = micro, .dp_kind = kind, .uneven = uneven});
      if (kLearningSamples % (ranks * micro) != 0) layouts.back().uneven = Switch::on;
    }
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}}) {
    const Learned one = learn(GetParam().spec, {}, precision);
    for (const LayoutSpec& layout : layouts)
      expect_close(learn(GetParam().spec, layout, precision), one, tolerance,
                   fmt::format("{} of {} ranks, micro {}", name_of(layout.dp_kind), layout.dp, layout.micro));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataParallel, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// What keeps the order of sums keeps every bit: how gradients are cut into buckets, whether they are summed while
// backward goes on, and who updates.
TEST(DataParallelBits, DoNotDependOnBucketsOverlapOrWhoUpdates) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs().back()}) {
    for (const int ranks : {3, 5, 7}) {
      LayoutSpec layout{.dp = ranks, .micro = 3, .bucket = 0, .uneven = Switch::on};
      const Learned each_parameter = learn(model.spec, layout, Precision::fp32);
      EXPECT_GT(each_parameter.norms[0], 0.1) << "clipping is to be active";
      const auto same = [&](const LayoutSpec& other, const char* what) {
        const Learned learned = learn(model.spec, other, Precision::fp32);
        EXPECT_TRUE(learned.weights() == each_parameter.weights()) << what << ", " << ranks << " ranks";
        EXPECT_EQ(learned.losses, each_parameter.losses) << what;
        EXPECT_EQ(learned.norms, each_parameter.norms) << what;
      };
      layout.overlap = Switch::off;
      same(layout, "without overlap");
      layout.bucket = 25;
      same(layout, "one bucket, without overlap");
      layout.overlap = Switch::on;
      same(layout, "one bucket");
      layout.dp_kind = DpKind::central;
      same(layout, "central");
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
