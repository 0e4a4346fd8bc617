// Training of three processes to which something happens: the right rank is named by all others, in time, each ends
// with 5, no process is left, and the run continues from its newest checkpoint. tests/slow/drills_test.cpp does it many
// times.
#include <gtest/gtest.h>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

class TrainingDrill : public ::testing::TestWithParam<std::tuple<Harm, const char*>> {};

TEST_P(TrainingDrill, EndsAsItShouldForEveryRankInTurn) {
  const auto [harm, layout] = GetParam();
  if (const std::string why = no_drill_here(harm == Harm::full_disk); !why.empty()) GTEST_SKIP() << why;
  // Those that are over at once; of stages, which wait for their neighbours alone, all that name somebody.
  const bool ends = harm == Harm::kill || harm == Harm::leave, stages = std::string_view(layout).starts_with("pp");
  const bool each = stages ? ends || harm == Harm::stop : ends && std::string_view(layout) == "dp=3,micro=3";
  for (int round = 0; round < (each ? 3 : 1); ++round)
    EXPECT_EQ(round_of(harm, layout, round), "") << "round " << round;
}

// A rank in the middle, that all others know by another axis.
TEST(MeshDrill, TheRightOneOfSixteenIsNamed) {
  if (const std::string why = no_drill_here(false); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(round_of(Harm::kill, kWholeMesh, 6), "");
  EXPECT_EQ(round_of(Harm::stop, kWholeMesh, 9), "");
}

INSTANTIATE_TEST_SUITE_P(Of, TrainingDrill, every_harm(), name_of_harm);

}  // namespace
}  // namespace lockstep::tests
