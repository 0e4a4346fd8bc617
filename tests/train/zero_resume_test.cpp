// What any stage saved over any number of ranks, any other goes on from, with no conversion.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

RunSpec tied_run(const LayoutSpec& layout) { return resumed_run(tiny_specs()[1].spec, layout); }

std::vector<LayoutSpec> zero_layouts() {
  std::vector<LayoutSpec> all;
  for (const int zero : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 5, 8})
      all.push_back({.dp = ranks, .micro = 2, .zero = zero, .uneven = Switch::on});
  all.push_back({.dp = 8, .micro = 2, .zero = 3, .shard = 4});
  return all;
}

bool same_sums(const LayoutSpec& a, const LayoutSpec& b) {
  return a.dp == b.dp && (a.dp == 1 || a.grad_sync == b.grad_sync);
}

TEST(ZeroResume, EveryStageAndCountGoesOnFromEveryOther) {
  int equal = 0, close = 0;
  for (const LayoutSpec& from : zero_layouts()) {
    const TemporaryFolder folder;
    const TrainedState stayed = train_all(tied_run(from), folder.path());
    const fs::path saved = folder.path() / step_folder_name(kSavedStep);
    // Every rank has written, but those of a second copy only what the first left them.
    EXPECT_EQ(std::ssize(open_checkpoint(saved).manifest().files), from.dp) << to_text(from);
    for (const LayoutSpec& to : zero_layouts()) {
      const TemporaryFolder unused;
      const TrainedState went_on = train_all(tied_run(to), unused.path(), saved);
      const std::string what = to_text(from) + " to " + to_text(to);
      if (same_sums(from, to)) {
        EXPECT_TRUE(went_on == stayed) << what;
        ++equal;
      } else {
        EXPECT_LE(distance(stayed, went_on), 1e-6) << what;
        ++close;
      }
    }
  }
  EXPECT_EQ(equal + close, 21 * 21);
  EXPECT_GE(equal, 16 + 4 * 2 * 4);
}

}  // namespace
}  // namespace lockstep::tests
