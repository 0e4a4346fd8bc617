// Gradients narrower than their logits may be written over them.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include "support/devices.h"
#include "support/loss_trial.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class NarrowLoss : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(NarrowLoss, IsTheSameInPlace) {
  CpuDevice cpu;
  EXPECT_EQ(try_loss({.vocabulary = GetParam(), .to = DType::bf16}, cpu.memory(), cpu.stream(2)), "");
  EXPECT_EQ(try_loss({.vocabulary = GetParam(), .to = DType::f16, .strided = true}, cpu.memory(), cpu.stream(3)), "");
}

INSTANTIATE_TEST_SUITE_P(Of, NarrowLoss, ::testing::Values(7, 16, 257, 1000, 32000, 50257, 128256, 200000),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(NarrowGradient, LiesOverTheLogitsRowByRowOrNotAtAll) {
  TensorBox box;
  const std::int64_t N = 3, V = 8;
  const Tensor whole = box.make(DType::f32, {N, 3 * V}, constant(1)), logits = whole.slice(1, 0, V);
  const auto with = [&](const Tensor& dlogits) {
    cross_entropy({.losses = box.make(DType::f32, {dlogits.dim(0)}),
                   .dlogits = dlogits,
                   .logits = logits.slice(0, 0, dlogits.dim(0)),
                   .targets = box.make(DType::i32, {dlogits.dim(0)}, constant(1)),
                   .scale = box.make(DType::f32, {1}, constant(1))},
                  box.stream());
  };
  EXPECT_NO_THROW(with(logits.narrowed(DType::bf16)));
  EXPECT_NO_THROW(with(whole.slice(1, V, V)));  // beside them
  EXPECT_NO_THROW(with(whole.narrowed(DType::f16).slice(1, 2 * V, V)));
  EXPECT_THROW(with(whole.slice(1, 1, V)), ProgramError);
  EXPECT_THROW(with(whole.narrowed(DType::bf16).slice(1, V, V)), ProgramError);
  const Tensor dense(whole.raw(), DType::bf16, Device::cpu, {N, V});  // rows do not begin where theirs do
  EXPECT_THROW(with(dense), ProgramError);
  EXPECT_NO_THROW(with(dense.slice(0, 0, 1)));
}

}  // namespace
}  // namespace lockstep::tests
