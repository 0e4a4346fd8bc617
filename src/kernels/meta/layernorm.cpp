#include "kernels/layernorm.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void layernorm_forward(const LayerNormForwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, (a.residual ? 9 : 8) * a.x.elements(), {a.x, a.residual, a.weight, a.bias},
        {a.y, a.sum, a.mean, a.rstd, a.amax});
}

void layernorm_backward_input(const LayerNormBackwardInputArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, ((a.dresidual ? 14 : 13) + (a.y ? 2 : 0)) * a.x.elements(),
        {a.dy, a.x, a.weight, a.mean, a.rstd, a.dresidual, a.y ? a.bias : ConstTensor{}}, {a.dx, a.y, a.amax});
}

void layernorm_backward_weight(const LayerNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::norm, 5 * a.x.elements(),
        {a.dy, a.x, a.mean, a.rstd, if_accumulating(a.accumulate, a.dweight), if_accumulating(a.accumulate, a.dbias)},
        {a.dweight, a.dbias});
}

}  // namespace lockstep::meta
