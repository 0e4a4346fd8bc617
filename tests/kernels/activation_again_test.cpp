// Backward can give the activation again, and gives the very bits of forward: a model may keep it or not, and learns
// the same.
#include <gtest/gtest.h>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class ActivationAgain : public ::testing::TestWithParam<DType> {
 protected:
  static std::vector<std::byte> bytes(const Tensor& t) {
    const auto* data = static_cast<const std::byte*>(t.raw());
    return {data, data + t.bytes()};
  }
  static constexpr std::int64_t kRows = 3, kWidth = 1003;
  TensorBox box_;
};

TEST_P(ActivationAgain, SwigluHasTheBitsOfForward) {
  const Shape shape{kRows, kWidth}, wide{kRows, 2 * kWidth};
  const Tensor gate_up = box_.make(GetParam(), wide, normal(20)), kept = box_.make(GetParam(), shape);
  const Tensor dy = box_.make(GetParam(), shape, normal(), 2);
  swiglu_forward({.y = kept, .gate_up = gate_up}, box_.stream());
  swiglu_backward({.d_gate_up = gate_up, .dy = dy, .gate_up = gate_up, .y = dy}, box_.stream());
  EXPECT_TRUE(bytes(dy) == bytes(kept));
}

TEST_P(ActivationAgain, GeluHasTheBitsOfForward) {
  const Shape shape{kRows, kWidth};
  const Tensor x = box_.make(GetParam(), shape, normal(20)), kept = box_.make(GetParam(), shape);
  const Tensor dy = box_.make(GetParam(), shape, normal(), 2);
  gelu_forward({.y = kept, .x = x}, box_.stream());
  gelu_backward({.dx = x, .dy = dy, .x = x, .y = dy}, box_.stream());
  EXPECT_TRUE(bytes(dy) == bytes(kept));
}

INSTANTIATE_TEST_SUITE_P(In, ActivationAgain, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
