// What any cut of the layers saved, any other goes on from, with no conversion.
#include <gtest/gtest.h>

#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

class TensorParallelResume : public ::testing::TestWithParam<int> {};  // a tiny model

TEST_P(TensorParallelResume, EveryLayoutGoesOnFromEveryOther) {
  const NamedSpec model = tiny_specs()[static_cast<std::size_t>(GetParam())];
  const std::vector<LayoutSpec> layouts = {{.dp = 1},
                                           {.dp = 3, .zero = 2, .uneven = Switch::on},
                                           {.tp = 3},
                                           {.tp = 3, .sp = Switch::off},
                                           {.tp = 6},
                                           {.dp = 2, .tp = 3, .zero = 1},
                                           {.dp = 2, .tp = 6, .micro = 2, .zero = 3},
                                           {.dp = 4, .tp = 3, .zero = 3, .shard = 2}};
  expect_each_goes_on_from_each(model.name, model.spec, layouts);
}

// Tied, with biases, with norms of heads, with fused projections.
INSTANTIATE_TEST_SUITE_P(Of, TensorParallelResume, ::testing::Values(1, 2, 5, 6),
                         [](const auto& info) { return tiny_specs()[static_cast<std::size_t>(info.param)].name; });

}  // namespace
}  // namespace lockstep::tests
