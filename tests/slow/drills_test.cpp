// The drills of tests/processes/drills_test.cpp a hundred times each, with a count of those that went right.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

constexpr int kRounds = 100;

class ManyDrills : public ::testing::TestWithParam<Harm> {};

TEST_P(ManyDrills, GoRightEveryTime) {
  if (const std::string why = no_drill_here(GetParam() == Harm::full_disk); !why.empty()) GTEST_SKIP() << why;
  int right = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string problem = round_of(GetParam(), round);
    right += problem.empty();
    EXPECT_EQ(problem, "") << "round " << round;
  }
  std::printf("%s: %d of %d\n", name_of(GetParam()), right, kRounds);
}

INSTANTIATE_TEST_SUITE_P(Of, ManyDrills,
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
