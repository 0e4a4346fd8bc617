// The drills of tests/processes/drills_test.cpp a hundred times each, with a count of those that went right.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

constexpr int kRounds = 100;

class ManyDrills : public ::testing::TestWithParam<std::tuple<Harm, const char*>> {};

TEST_P(ManyDrills, GoRightEveryTime) {
  const auto [harm, layout] = GetParam();
  if (const std::string why = no_drill_here(harm == Harm::full_disk); !why.empty()) GTEST_SKIP() << why;
  int right = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string problem = round_of(harm, layout, round);
    right += problem.empty();
    EXPECT_EQ(problem, "") << "round " << round;
  }
  std::printf("%s, %s: %d of %d\n", name_of(harm), layout, right, kRounds);
}

INSTANTIATE_TEST_SUITE_P(Of, ManyDrills, every_harm(), name_of_harm);

}  // namespace
}  // namespace lockstep::tests
