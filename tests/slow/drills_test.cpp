// The drills of tests/processes/drills_test.cpp a hundred times each, with a count of those that went right.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

constexpr int kRounds = 100;

class ManyDrills : public ::testing::TestWithParam<std::tuple<Harm, int>> {};

TEST_P(ManyDrills, GoRightEveryTime) {
  const auto [harm, zero] = GetParam();
  if (const std::string why = no_drill_here(harm == Harm::full_disk); !why.empty()) GTEST_SKIP() << why;
  int right = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string problem = round_of(harm, zero, round);
    right += problem.empty();
    EXPECT_EQ(problem, "") << "round " << round;
  }
  std::printf("%s, zero = %d: %d of %d\n", name_of(harm), zero, right, kRounds);
}

INSTANTIATE_TEST_SUITE_P(Of, ManyDrills,
                         ::testing::Combine(::testing::Values(Harm::kill, Harm::stop, Harm::leave, Harm::full_disk,
                                                              Harm::exception, Harm::pause),
                                            ::testing::Values(0, 3)),
                         [](const auto& test) {
                           std::string name = name_of(std::get<0>(test.param));
                           for (char& c : name)
                             if (c == ' ') c = '_';
                           return name + "_zero" + std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace lockstep::tests
