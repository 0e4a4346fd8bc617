#include "kernels/step_control.h"

#include "kernels/norm_sum.h"
#include "kernels/operands.h"

namespace lockstep {

void step_control(const StepControlArgs& a, Stream& stream) {
  Operands("step_control", stream)
      .have_flat("control", a.control, {kStepControls}, DType::f64)
      .have_flat("bins", a.bins, {kNormBins}, DType::i64);
  dispatch(cpu::step_control, cuda::step_control, meta::step_control, a, stream);
}

void scale_loss(const ScaleLossArgs& a, Stream& stream) {
  Operands("scale_loss", stream)
      .have_flat("weight", a.weight, {1}, accumulator_of(a.weight.dtype()))
      .have_flat("scaled", a.scaled, {1}, a.weight.dtype())
      .have_flat("control", a.control, {kStepControls}, DType::f64);
  dispatch(cpu::scale_loss, cuda::scale_loss, meta::scale_loss, a, stream);
}

}  // namespace lockstep
