// Values of a layout that have a text of their own: how context-parallel ranks attend, and where chunks end.
#include <gtest/gtest.h>

#include "spec/layout/cp_kind.h"
#include "spec/layout/stage_rule.h"

namespace lockstep::tests {
namespace {

TEST(CpKindText, ReadsBackAsItWasWritten) {
  for (const char* text : {"ring", "ulysses", "2x3", "4x1", "1x4", "2147483647x1"}) {
    const std::optional<CpKind> kind = CpKind::parse(text);
    ASSERT_TRUE(kind) << text;
    EXPECT_EQ(kind->text(), text);
  }
  EXPECT_EQ(CpKind::parse("ring"), kRing);
  EXPECT_EQ(CpKind::parse("ulysses"), kUlysses);
  EXPECT_EQ(CpKind::parse("2x3"), CpKind::of_factors(2, 3));
  EXPECT_NE(CpKind::parse("4x1"), kRing) << "it is another text, so another value";
}

TEST(CpKindText, IsRefusedWhereItIsNoneOfTheThree) {
  for (const char* text : {"", "rings", "Ring", "x", "2x", "x2", "-2x-2", "+2x2", "2x2x1", "0x4", "4x0", "2 x2", "2x2 ",
                           "2147483648x1", "99999999999999999999x1"})
    EXPECT_FALSE(CpKind::parse(text)) << text;
}

TEST(CpKindFactors, OfRingAndUlyssesFollowCp) {
  EXPECT_EQ(kRing.factors(4), (ContextFactors{4, 1}));
  EXPECT_EQ(kUlysses.factors(4), (ContextFactors{1, 4}));
  EXPECT_EQ(CpKind::of_factors(2, 3).factors(4), (ContextFactors{2, 3}));
}

TEST(StageRuleText, ReadsBackAsItWasWritten) {
  for (const char* text : {"cost", "even", "3+5", "0+5", "7", "1+2+3+4", "65536"}) {
    const std::optional<StageRule> rule = StageRule::parse(text);
    ASSERT_TRUE(rule) << text;
    EXPECT_EQ(rule->text(), text);
  }
  EXPECT_EQ(StageRule::parse("cost"), StageRule{});
  EXPECT_EQ(StageRule::parse("even"), StageRule::even());
  EXPECT_EQ(StageRule::parse("3+5"), StageRule::of_layers({3, 5}));
}

TEST(StageRuleText, IsRefusedWhereItIsNoneOfTheThree) {
  for (const char* text : {"", "costs", "-1+9", "3+-5", "3+", "+3", "3 + 5", "3+5x", "3++5", "65537"})
    EXPECT_FALSE(StageRule::parse(text)) << text;
}

}  // namespace
}  // namespace lockstep::tests
