// Training of three processes to which something happens: the right rank is named by all others, in time, each ends
// with 5, no process is left, and the run goes on from its newest checkpoint. tests/slow/drills_test.cpp does it many
// times.
#include <gtest/gtest.h>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

class TrainingDrill : public ::testing::TestWithParam<Harm> {};

TEST_P(TrainingDrill, EndsAsItShouldForEveryRankInTurn) {
  if (const std::string why = no_drill_here(GetParam() == Harm::full_disk); !why.empty()) GTEST_SKIP() << why;
  const bool each = GetParam() == Harm::kill || GetParam() == Harm::leave;  // those that are over at once
  for (int round = 0; round < (each ? 3 : 1); ++round) EXPECT_EQ(round_of(GetParam(), round), "") << "round " << round;
}

INSTANTIATE_TEST_SUITE_P(Of, TrainingDrill,
                         ::testing::Values(Harm::kill, Harm::stop, Harm::leave, Harm::full_disk, Harm::exception,
                                           Harm::pause),
                         [](const auto& test) {
                           std::string name = name_of(test.param);
                           for (char& c : name)
                             if (c == ' ') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace lockstep::tests
