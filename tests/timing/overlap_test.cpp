// Messages run while ranks compute: on a slow link, most of the time that they take is hidden.
#include <gtest/gtest.h>

#include "support/timed_ranks.h"

namespace lockstep::tests {
namespace {

// Without overlap, `seen` of the time is to be seen: between a start and its wait there is a moment, on a busy machine
// a long one, and where messages are many and small that adds up.
void expect_hidden(const LayoutSpec& layout, double share, double seen = 0.95) {
  std::vector<double> hidden, shown;
  const auto trial = [&] {
    const Shown one = shown_of_messages(layout);
    shown.push_back(one.without);
    return 1 - one.with;
  };
  EXPECT_TRUE(median_is_good(
      trial, [&](double one) { return one >= share; }, hidden))
      << "hidden with overlap";
  EXPECT_GE(median(shown), seen) << "seen without it";
  fmt::print("{}: hidden with overlap {}(to be {:.2g}); seen without it {}(to be {:.2g})\n", to_text(layout),
             sorted_text(hidden), share, sorted_text(shown), seen);
}

TEST(DataParallelOverlap, HidesFourFifthsOfWhatTakesHalfAsLongAsComputing) {
  expect_hidden({.dp = 2, .bucket = 1}, 0.8);
}

TEST(ZeroOverlap, HidesGathersAndSums) {
  expect_hidden({.dp = 2, .zero = 3}, 0.7);
  expect_hidden({.dp = 2, .zero = 3, .grad_sync = GradSync::step}, 0.7);
}

// Of four chunks one cannot be hidden, and the embedding's and the head's exchanges have no product beside them.
TEST(TensorParallelOverlap, HidesMostOfWhatHasAProductBesideIt) {
  const double blocks = 8, hideable = (8 * 3.0 / 4 + 2) * blocks / (10 * blocks + 4);
  expect_hidden({.tp = 2, .tp_chunks = 4}, 0.5 * hideable, 0.8);
}

}  // namespace
}  // namespace lockstep::tests
