// The scalars of one optimizer step, kept on the device so that no step waits for the host.
//
// A tensor of kStepControls doubles. The host writes the learning rate before a step, and how many updates there were
// (step) and that nothing is halted before the first. step_control turns the bins of norm_sum into the norm, the factor
// that clips it, and whether it was finite, and counts the update that is about to be made (step is then 1 for the
// first). AdamW's bias corrections of that update, 1 - beta1^step and sqrt(1 - beta2^step), are computed here too, in
// one place: pow is not the same bits on every device, and an update on the host beside a GPU reads what the GPU's
// would. The optimizers read all of them and leave everything as it is when `finite` is 0: a bad value never updates.
// With `halt`, the first bad value also keeps all later steps from updating, until the host sets halted to 0: a host
// that learns of a step only after it has begun the next finds the weights as the bad step saw them. Clipping is
// min(1, clip / (norm + 1e-6)); clip 0 means none.
//
// Loss scaling: gradients are those of the loss times 2^loss_exponent, which scale_loss writes. The norm and the factor
// that the optimizers multiply gradients by undo it without rounding. With `growth` the exponent is dynamic: a norm
// that is not finite lowers it by one and is no bad value, down to 0, and `growth` updates in a row raise it, up to
// `most_exponent`. Zero is no scaling.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

enum StepControlIndex : int {
  kLearningRate,
  kStep,
  kNorm,
  kGradientScale,
  kFinite,
  kHalted,
  kLossExponent,
  kScaledSteps,
  kFirstCorrection,
  kSecondCorrection,
  kStepControls
};

struct StepControlArgs {
  Tensor control;  // (kStepControls) fp64
  ConstTensor bins;
  double clip = 0;
  bool halt = false;
  double beta1 = 0;  // of AdamW
  double beta2 = 0;
  std::int64_t growth = 0;  // 0: the exponent stays
  int most_exponent = 0;
};

struct ScaleLossArgs {
  Tensor scaled;       // (1) fp32 or fp64: weight · 2^loss_exponent
  ConstTensor weight;  // (1) of the same type
  ConstTensor control;
};

using StepControl = void(const StepControlArgs&, Stream&);
using ScaleLoss = void(const ScaleLossArgs&, Stream&);
StepControl step_control;
ScaleLoss scale_loss;
namespace cpu {
StepControl step_control;
ScaleLoss scale_loss;
}  // namespace cpu
namespace cuda {
StepControl step_control;
ScaleLoss scale_loss;
}  // namespace cuda
namespace meta {
StepControl step_control;
ScaleLoss scale_loss;
}  // namespace meta

}  // namespace lockstep
