// Where chunks end: by cost as well as can be, evenly, by hand.
#include "spec/layout/stage_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;

double dearest(const std::vector<double>& costs, const std::vector<int>& begins) {
  double most = 0;
  for (std::size_t k = 0; k < begins.size(); ++k) {
    double run = 0;
    const std::size_t end = k + 1 < begins.size() ? static_cast<std::size_t>(begins[k + 1]) : costs.size();
    for (auto u = static_cast<std::size_t>(begins[k]); u < end; ++u) run += costs[u];
    most = std::max(most, run);
  }
  return most;
}

// Every cut there is.
void each_cut(int units, int chunks, std::vector<int> begins,
              const std::function<void(const std::vector<int>&)>& visit) {
  if (static_cast<int>(begins.size()) == chunks) return visit(begins);
  for (int next = begins.back() + 1; next <= units - (chunks - static_cast<int>(begins.size())); ++next) {
    begins.push_back(next);
    each_cut(units, chunks, begins, visit);
    begins.pop_back();
  }
}

TEST(StageCut, ByCostIsAsGoodAsAnyOther) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int units = 1 + static_cast<int>(random() % 10), chunks = 1 + static_cast<int>(random() % units);
    std::vector<double> costs(static_cast<std::size_t>(units));
    for (double& cost : costs) cost = static_cast<double>(random() % 20);
    const std::vector<int> cut = cut_by_cost(costs, chunks);
    ASSERT_EQ(std::ssize(cut), chunks);
    EXPECT_EQ(cut[0], 0);
    EXPECT_TRUE(std::ranges::is_sorted(cut, std::less_equal<>())) << "none is empty";
    each_cut(units, chunks, {0},
             [&](const std::vector<int>& other) { EXPECT_LE(dearest(costs, cut), dearest(costs, other)); });
  }
}

TEST(StageCut, AHeavyHeadHasFewerLayers) {
  EXPECT_THAT(cut_by_cost(std::vector<double>{0, 1, 1, 1, 1, 1, 1, 1, 1, 4}, 2), ElementsAre(0, 7));
  EXPECT_THAT(cut_by_cost(std::vector<double>{9, 1, 1, 1, 1, 9}, 3), ElementsAre(0, 1, 5));
  // Of cuts whose dearest run is the same, the one whose other runs are most alike.
  EXPECT_THAT(cut_by_cost(std::vector<double>{4, 1, 1, 1, 1}, 3), ElementsAre(0, 1, 3));
}

TEST(StageCut, EvenlyGivesWhatIsLeftToTheMiddle) {
  EXPECT_THAT(cut_evenly(8, 2), ElementsAre(0, 5));
  EXPECT_THAT(cut_evenly(7, 3), ElementsAre(0, 3, 6));     // 2, 3, 2
  EXPECT_THAT(cut_evenly(8, 3), ElementsAre(0, 4, 7));     // 3, 3, 2: then to the first
  EXPECT_THAT(cut_evenly(2, 4), ElementsAre(0, 1, 2, 3));  // the embedding, a layer each, the head
  EXPECT_THAT(cut_evenly(6, 1), ElementsAre(0));
  EXPECT_THAT(cut_by_hand(std::vector<std::int64_t>{0, 7}), ElementsAre(0, 1));
  EXPECT_THAT(cut_by_hand(std::vector<std::int64_t>{7, 0}), ElementsAre(0, 8));
}

// A model of more layers than a search has time for is cut all the same.
TEST(StageCut, OfVeryManyUnitsIsEven) {
  const std::vector<int> cut = cut_by_cost(std::vector<double>(60'000, 1.0), 8);
  ASSERT_EQ(cut.size(), 8u);
  for (std::size_t k = 1; k < 8; ++k) EXPECT_NEAR(cut[k] - cut[k - 1], 7500, 2);
}

}  // namespace
}  // namespace lockstep::tests
