#include "kernels/rmsnorm.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void rmsnorm_forward(const RmsNormForwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, (a.residual ? 5 : 4) * a.x.elements(), {a.x, a.residual, a.weight},
        {a.y, a.sum, a.rstd, a.amax});
}

void rmsnorm_backward_input(const RmsNormBackwardInputArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, ((a.dresidual ? 8 : 7) + (a.y ? 2 : 0)) * a.x.elements(),
        {a.dy, a.x, a.weight, a.rstd, a.dresidual}, {a.dx, a.y, a.amax});
}

void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, 3 * a.x.elements(), {a.dy, a.x, a.rstd, if_accumulating(a.accumulate, a.dweight)},
        {a.dweight});
}

}  // namespace lockstep::meta
