// What any pipeline saved, any other layout goes on from, with no conversion.
#include <gtest/gtest.h>

#include "support/resumed_runs.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

class PipelineResume : public ::testing::TestWithParam<int> {};  // a tiny model

TEST_P(PipelineResume, EveryLayoutGoesOnFromEveryOther) {
  NamedSpec model = tiny_specs()[static_cast<std::size_t>(GetParam())];
  model.spec.layers = 5;
  const std::vector<LayoutSpec> layouts = {{.dp = 1},
                                           {.dp = 3, .zero = 2, .uneven = Switch::on},
                                           {.tp = 3},
                                           {.pp = 2},
                                           {.pp = 3, .schedule = ScheduleKind::zb_v, .chunks = 2, .micro = 2},
                                           {.pp = 2, .schedule = ScheduleKind::interleaved, .chunks = 3, .micro = 4},
                                           {.dp = 2, .pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 2, .zero = 1},
                                           {.dp = 2, .pp = 2, .tp = 3, .micro = 2, .zero = 3}};
  expect_each_goes_on_from_each(model.name, model.spec, layouts);
}

// Tied, with fused projections and learned positions, untied.
INSTANTIATE_TEST_SUITE_P(Of, PipelineResume, ::testing::Values(0, 1, 6),
                         [](const auto& info) { return tiny_specs()[static_cast<std::size_t>(info.param)].name; });

}  // namespace
}  // namespace lockstep::tests
