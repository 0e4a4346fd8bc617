// What any cut of the layers saved, any other goes on from, with no conversion.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

class TensorParallelResume : public ::testing::TestWithParam<int> {};  // a tiny model

TEST_P(TensorParallelResume, EveryLayoutGoesOnFromEveryOther) {
  const NamedSpec model = tiny_specs()[static_cast<std::size_t>(GetParam())];
  const auto run_of = [&](const LayoutSpec& layout) {
    RunSpec run = resumed_run(model.spec, layout);
    run.data.seq = 12;
    run.precision.compute = Precision::fp64;
    return run;
  };
  const std::vector<LayoutSpec> layouts = {{.dp = 1},
                                           {.dp = 3, .zero = 2, .uneven = Switch::on},
                                           {.tp = 3},
                                           {.tp = 3, .sp = Switch::off},
                                           {.tp = 6},
                                           {.dp = 2, .tp = 3, .zero = 1},
                                           {.dp = 2, .tp = 6, .micro = 2, .zero = 3},
                                           {.dp = 4, .tp = 3, .zero = 3, .shard = 2}};
  for (const LayoutSpec& from : layouts) {
    const TemporaryFolder folder;
    const TrainedState stayed = train_all(run_of(from), folder.path());
    const std::filesystem::path saved = folder.path() / step_folder_name(kSavedStep);
    for (const LayoutSpec& to : layouts) {
      const TemporaryFolder unused;
      const TrainedState went_on = train_all(run_of(to), unused.path(), saved);
      const std::string what = model.name + ": " + to_text(from) + " to " + to_text(to);
      if (from == to)
        EXPECT_TRUE(went_on == stayed) << what;
      else
        EXPECT_LE(distance(stayed, went_on), 1e-11) << what;
    }
  }
}

// Tied, with biases, with norms of heads, with fused projections.
INSTANTIATE_TEST_SUITE_P(Of, TensorParallelResume, ::testing::Values(1, 2, 5, 6),
                         [](const auto& info) { return tiny_specs()[static_cast<std::size_t>(info.param)].name; });

}  // namespace
}  // namespace lockstep::tests
