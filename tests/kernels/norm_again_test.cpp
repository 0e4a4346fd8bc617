// Backward can give a norm's output again, and gives the very bits of forward: a model may keep it or not, and learns
// the same.
#include "support/norm_again.h"

#include <gtest/gtest.h>

#include "kernels/layernorm.h"
#include "support/devices.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

TEST(NormAgain, HasTheBitsOfForward) {
  CpuDevice device;
  for (const KernelCase& twice : norms_again())
    EXPECT_EQ(difference_of_norms(twice, device.memory(), device.stream(2)), "");
}

TEST(NormAgain, OfLayerNormNeedsTheBias) {
  TensorBox box;
  const Tensor x = box.make(DType::f32, {2, 3}), row = box.make(DType::f32, {2}), weight = box.make(DType::f32, {3});
  const LayerNormBackwardInputArgs args{
      .dx = x, .dy = x, .x = x, .weight = weight, .mean = row, .rstd = row, .y = box.make(DType::f32, {2, 3})};
  EXPECT_THROW(layernorm_backward_input(args, box.stream()), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
