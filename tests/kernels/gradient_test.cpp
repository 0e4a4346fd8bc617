// Every backward is the slope of its forward, by central differences in double.
#include "support/gradient_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/case_run.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

class EveryBackward : public ::testing::TestWithParam<int> {
 protected:
  const GradientCase& gradient() const { return gradient_cases()[GetParam()]; }

  std::vector<std::vector<double>> outputs(const CaseRun& run) const {
    std::vector<std::vector<double>> values;
    for (const auto& [value, _] : gradient().outputs) values.push_back(run.read(value).value);
    return values;
  }

  // The slope of sum(weight · output) along element i of an input. The outputs are subtracted before they are summed,
  // so the loss's own size adds no noise.
  double slope(CaseRun& run, const std::vector<std::vector<double>>& weights, int input, std::int64_t i,
               Stream& stream) const {
    const std::vector<double> x = run.given()[input].value;
    const double h = 1e-5 * std::max(1.0, std::abs(x[i]));
    std::vector<std::vector<double>> ends[2];
    for (const int side : {0, 1}) {
      std::vector<double> moved = x;
      moved[i] += side == 0 ? -h : h;
      run.set(input, moved);
      run.run(stream);
      ends[side] = outputs(run);
    }
    run.set(input, x);
    double change = 0;
    for (std::size_t n = 0; n < weights.size(); ++n)
      for (std::size_t k = 0; k < ends[0][n].size(); ++k)
        change += weights[n][k % weights[n].size()] * (ends[1][n][k] - ends[0][n][k]);
    return change / (2 * h);
  }

  CpuDevice device_;
};

// h = 1e-5 leaves h² ≈ 1e-10 of the third derivative and 1e-11 of rounding: 1e-7 of the gradient's scale is a wide
// margin, and far below any term that could be missing.
TEST_P(EveryBackward, IsTheSlopeOfItsForward) {
  CaseRun run(gradient().both, device_.memory());
  Stream& stream = device_.stream();
  run.run(stream);
  ASSERT_EQ(run.trespass(), "");
  std::vector<std::vector<double>> weights, written;
  for (const auto& [_, weight] : gradient().outputs) weights.push_back(run.given()[weight].value);
  for (const auto& [_, written_to] : gradient().inputs) written.push_back(run.read(written_to).value);

  for (std::size_t n = 0; n < gradient().inputs.size(); ++n) {
    const int input = gradient().inputs[n].value;
    const std::vector<double>& dx = written[n];
    double scale = 0;
    for (const double d : dx) scale = std::max(scale, std::abs(d));
    EXPECT_GT(scale, 0);
    const std::int64_t size = static_cast<std::int64_t>(dx.size()), tries = std::min<std::int64_t>(size, 60);
    for (std::int64_t k = 0; k < tries; ++k) {
      const auto i =
          size <= tries ? k : static_cast<std::int64_t>(uniform_number(GetParam(), k) * static_cast<double>(size));
      EXPECT_NEAR(dx[i], slope(run, weights, input, i, stream), 1e-7 * scale)
          << "element " << i << " of the gradient of " << run.given()[input].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, EveryBackward, ::testing::Range(0, static_cast<int>(gradient_cases().size())),
                         [](const auto& info) { return gradient_cases()[info.param].both.name(); });

}  // namespace
}  // namespace lockstep::tests
