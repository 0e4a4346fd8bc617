// Messages run while ranks compute: on a slow link, most of the time that they take is hidden.
#include <gtest/gtest.h>

#include "support/timed_ranks.h"

namespace lockstep::tests {
namespace {

// Without overlap, `seen` of the time is to be seen: between a start and its wait there is a moment, on a busy machine
// a long one, and where messages are many and small that adds up.
void expect_hidden(const LayoutSpec& layout, double share, double seen = 0.95) {
  Shown shown;
  for (int attempt = 0; attempt < 8 && (1 - shown.with < share || shown.without < seen); ++attempt)
    shown = shown_of_messages(layout);
  EXPECT_GE(1 - shown.with, share) << "with overlap: " << to_text(layout);
  EXPECT_GE(shown.without, seen) << "without it, all of the time is to be seen: " << to_text(layout);
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
