// Messages run while ranks compute: on a slow link, most of the time that they take is hidden.
#include <gtest/gtest.h>

#include "support/timed_ranks.h"

namespace lockstep::tests {
namespace {

// Without overlap, `seen` of the time is to be seen: between a start and its wait there is a moment, on a busy machine
// a long one, and where messages are many and small that adds up.
void expect_hidden(const LayoutSpec& layout, double share, double seen = 0.95) {
  std::vector<double> hidden, shown;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shown one = shown_of_messages(layout);
    hidden.push_back(1 - one.with);
    shown.push_back(one.without);
  }
  const Trials with(hidden), without(shown);
  EXPECT_GE(with.median(), share) << "hidden with overlap: " << with.text() << to_text(layout);
  EXPECT_GE(without.median(), seen) << "seen without it: " << without.text() << to_text(layout);
  fmt::print("{}: hidden with overlap {}; seen without it {}\n", to_text(layout), with.text(), without.text());
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
  expect_hidden({.tp = 2, .tp_chunks = 4}, 0.6 * hideable, 0.8);
}

}  // namespace
}  // namespace lockstep::tests
