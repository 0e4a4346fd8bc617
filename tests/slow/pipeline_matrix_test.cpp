// All pipelines of every model: those of which tests/train/pipeline_parallel_test.cpp runs a sample.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/pipeline_layouts.h"

namespace lockstep::tests {
namespace {

class PipelineMatrix : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PipelineMatrix, LearnsWhatOneRankLearns) {
  const NamedSpec model = deep_specs()[GetParam()];
  int seen = 0;
  for (int micro = 1; micro <= 8; ++micro) {
    const Learned one = learn_pipelined(model.spec, {.micro = micro}, Precision::fp64);
    for (const LayoutSpec& layout : pipelines(model.spec, micro)) {
      expect_equal(learn_pipelined(model.spec, layout, Precision::fp64), one, model.name + ", " + to_text(layout));
      ++seen;
    }
    for (const LayoutSpec& layout : meshes(model.spec, micro)) {
      expect_close(learn_pipelined(model.spec, layout, Precision::fp64), one, 1e-11,
                   model.name + ", " + to_text(layout));
      ++seen;
    }
  }
  std::printf("%s: %d layouts\n", model.name.c_str(), seen);
}

INSTANTIATE_TEST_SUITE_P(All, PipelineMatrix, ::testing::Range(std::size_t{0}, deep_specs().size()),
                         [](const auto& info) { return deep_specs()[info.param].name; });

}  // namespace
}  // namespace lockstep::tests
