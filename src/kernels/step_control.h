// The scalars of one optimizer step, kept on the device so that no step waits for the host.
//
// A tensor of kStepControls doubles. The host writes learning_rate and step (1 for the first update); step_control
// turns the bins of norm_sum into the norm, the factor that clips it, and whether it was finite; the optimizers read
// all of them and leave everything as it is when `finite` is 0: a bad value never updates. Clipping is min(1, clip /
// (norm + 1e-6)); clip 0 means none.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

enum StepControlIndex : int { kLearningRate, kStep, kNorm, kGradientScale, kFinite, kStepControls };

struct StepControlArgs {
  Tensor control;  // (kStepControls) fp64
  ConstTensor bins;
  double clip = 0;
};

using StepControl = void(const StepControlArgs&, Stream&);
StepControl step_control;
namespace cpu {
StepControl step_control;
}
namespace cuda {
StepControl step_control;
}
namespace meta {
StepControl step_control;
}

}  // namespace lockstep
