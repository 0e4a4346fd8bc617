// One range of parameters and its optimizer: steps worked out by hand, with decay of the first elements alone.
#include "optim/flat_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/step_control.h"
#include "support/step_controls.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

using Values = std::vector<double>;

class FlatOptimizers : public ::testing::Test {
 protected:
  // An optimizer of four elements, the first two of which decay, after `steps` steps with the same gradient.
  Values after(const OptimizerSpec& spec, int steps) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    FlatOptimizer optimizer(spec, {.elements = 4, .decayed = 2, .moments = DType::f64}, *memory, "unit", box_.stream());
    const Tensor master = box_.make(DType::f64, {4}, Values{1, 2, 3, 4}), weight = box_.make(DType::f64, {4});
    const Tensor gradient = box_.make(DType::f64, {4}, Values{0.5, -1, 0.25, 2});
    for (int step = 1; step <= steps; ++step) {
      // Learning rate 0.1, a gradient that is clipped to half of it.
      const Tensor control =
          box_.make(DType::f64, {kStepControls},
                    step_controls({.rate = 0.1, .step = step, .scale = 0.5, .beta1 = spec.beta1, .beta2 = spec.beta2}));
      optimizer.update(master, weight, gradient, control, box_.stream());
    }
    for (std::int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(box_.read(weight, i), box_.read(master, i)) << "the copy that computes";
    state_.clear();
    for (const auto& [name, tensor] : optimizer.named_state()) state_ += std::string(name) + " ";
    return box_.read(master);
  }
  static void expect_near(const Values& got, const Values& want) {
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << i;
  }
  TensorBox box_;
  std::string state_;
};

TEST_F(FlatOptimizers, SgdDecaysTheFirstElementsAlone) {
  // g = 0.5 · gradient + 0.2 · weight, or without the weight; weight − 0.1 · g.
  expect_near(after({.kind = OptimizerKind::sgd, .momentum = 0, .weight_decay = 0.2}, 1),
              {1 - 0.1 * (0.25 + 0.2), 2 - 0.1 * (-0.5 + 0.4), 3 - 0.1 * 0.125, 4 - 0.1});
  EXPECT_EQ(state_, "");
  expect_near(after({.kind = OptimizerKind::sgd, .momentum = 0, .weight_decay = 0}, 1), {0.975, 2.05, 2.9875, 3.9});
}

TEST_F(FlatOptimizers, SgdKeepsMomentum) {
  // The second step moves by 0.9 of the first and its own.
  const Values one = after({.kind = OptimizerKind::sgd, .momentum = 0.9, .weight_decay = 0.2}, 1);
  expect_near(one, {0.955, 2.01, 2.9875, 3.9});
  const Values two = after({.kind = OptimizerKind::sgd, .momentum = 0.9, .weight_decay = 0.2}, 2);
  expect_near(two, {0.955 - 0.1 * (0.9 * 0.45 + 0.25 + 0.2 * 0.955), 2.01 - 0.1 * (0.9 * -0.1 - 0.5 + 0.2 * 2.01),
                    2.9875 - 0.1 * 1.9 * 0.125, 3.9 - 0.1 * 1.9});
  EXPECT_EQ(state_, "momentum ");
}

TEST_F(FlatOptimizers, AdamWMovesByTheRateAtFirstAndDecaysTheFirstElementsAlone) {
  // Corrected for their beginning, the moments of a first step are g and g²: it moves by 0.1 · g / (|g| + eps).
  const OptimizerSpec spec{.kind = OptimizerKind::adamw, .beta1 = 0.9, .beta2 = 0.99, .eps = 0.25, .weight_decay = 0.2};
  const Values one{1 * 0.98 - 0.1 * 0.25 / 0.5, 2 * 0.98 + 0.1 * 0.5 / 0.75, 3 - 0.1 * 0.125 / 0.375,
                   4 - 0.1 * 1 / 1.25};
  expect_near(after(spec, 1), one);
  // And so are those of later steps with the same gradient.
  Values two = one;
  for (std::size_t i = 0; i < 4; ++i)
    two[i] = one[i] * (i < 2 ? 0.98 : 1) + one[i] - Values{1, 2, 3, 4}[i] * (i < 2 ? 0.98 : 1);
  expect_near(after(spec, 2), two);
  EXPECT_EQ(state_, "m v ");
}

// A shard knows where it begins in its unit: state of 16 bits is rounded by the same chances as the whole's, and
// tensors differ.
TEST_F(FlatOptimizers, AShardMovesAsTheWholeDoes) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto bits = [&](const std::vector<std::int64_t>& cuts, std::uint64_t key) {
      Ledger ledger;
      const auto memory = make_memory(Device::cpu, ledger);
      const Tensor gradient = box_.make(DType::f32, {1024}, magnitudes(-12, 2));
      std::vector<std::byte> all;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::int64_t first = cuts[i], elements = cuts[i + 1] - first;
        FlatOptimizer optimizer({},
                                {.elements = elements,
                                 .decayed = 0,
                                 .moments = DType::bf16,
                                 .first = first,
                                 .rounding = {RoundingRun::flat(0, 400, key), RoundingRun::flat(400, 624, key + 1)}},
                                *memory, "unit", box_.stream());
        const Tensor master = box_.make(type, {elements}, constant(1));
        for (int step = 1; step <= 3; ++step)
          optimizer.update(master, {}, gradient.slice(0, first, elements),
                           box_.make(DType::f64, {kStepControls}, step_controls({.rate = 0.1, .step = step})),
                           box_.stream());
        const std::vector<std::byte> part = box_.bytes(master);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    };
    const std::vector<std::byte> whole = bits({0, 1024}, 5);
    EXPECT_TRUE(bits({0, 256, 768, 1024}, 5) == whole);
    EXPECT_TRUE(bits({0, 3, 402, 1024}, 5) == whole);
    EXPECT_FALSE(bits({0, 1024}, 7) == whole);
  }
}

}  // namespace
}  // namespace lockstep::tests
