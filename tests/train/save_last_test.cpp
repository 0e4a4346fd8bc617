// A run that is told not to save where it ends leaves no checkpoint there, and those of save_every stay.
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

std::vector<std::int64_t> steps_saved(bool save_last, std::int64_t save_every) {
  RunSpec spec;
  spec.model = tiny_specs().front().spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 5, .global_batch = 2, .save_every = save_every, .save_last = save_last};
  spec.run.threads = 1;
  TemporaryFolder folder;
  TrainingRun run(spec, Device::cpu, folder.path());
  run.init_weights();
  Progress progress = beginning(run);
  Watcher nobody;
  train(run, progress, nobody);
  return steps_in(folder.path());
}

TEST(Loop, SavesWhereItEndsUnlessToldNotTo) {
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(steps_saved(true, 0), Steps{5});
  EXPECT_EQ(steps_saved(false, 0), Steps{});
  EXPECT_EQ(steps_saved(false, 3), Steps{3});
}

}  // namespace
}  // namespace lockstep::tests
