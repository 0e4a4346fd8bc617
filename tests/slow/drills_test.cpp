// The drills of tests/processes/drills_test.cpp twenty times each, with a count of those that went right.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/drill.h"
#include "support/drill_rounds.h"

namespace lockstep::tests {
namespace {

constexpr int kRounds = 20;

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

// Over all axes: every rank in turn, and some of them again.
TEST(ManyMeshDrills, NameTheRightOneEveryTime) {
  if (const std::string why = no_drill_here(false); !why.empty()) GTEST_SKIP() << why;
  constexpr int kMeshRounds = 50;
  int right = 0;
  for (int round = 0; round < kMeshRounds; ++round) {
    const Harm harm = round % 3 == 0 ? Harm::stop : round % 3 == 1 ? Harm::leave : Harm::kill;
    const std::string problem = round_of(harm, kWholeMesh, round);
    right += problem.empty();
    EXPECT_EQ(problem, "") << "round " << round << ", " << name_of(harm);
  }
  std::printf("%s: %d of %d\n", kWholeMesh, right, kMeshRounds);
}

INSTANTIATE_TEST_SUITE_P(Of, ManyDrills, every_harm(), name_of_harm);

}  // namespace
}  // namespace lockstep::tests
