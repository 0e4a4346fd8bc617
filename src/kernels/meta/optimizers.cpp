#include "kernels/optimizers.h"

#include "kernels/meta/count.h"
#include "kernels/norm_sum.h"
#include "kernels/step_control.h"

namespace lockstep::meta {

void norm_sum(const NormSumArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::sum, 2 * a.x.elements(), {a.x, if_accumulating(a.accumulate, a.bins)}, {a.bins});
}

void step_control(const StepControlArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::sum, 4, {a.bins, a.control}, {a.control});
}

void scale_loss(const ScaleLossArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::sum, 1, {a.weight, a.control}, {a.scaled});
}

void adamw(const AdamWArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::optimizer, 15 * a.master.elements(), {a.master, a.m, a.v, a.gradient, a.control},
        {a.master, a.weight, a.m, a.v});
}

void sgd(const SgdArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::optimizer, 7 * a.master.elements(), {a.master, a.momentum, a.gradient, a.control},
        {a.master, a.weight, a.momentum});
}

}  // namespace lockstep::meta
