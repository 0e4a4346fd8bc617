#include "kernels/gelu.h"
#include "kernels/meta/count.h"
#include "kernels/swiglu.h"

// An exponential, a division and a tanh count as one operation each.
namespace lockstep::meta {

void swiglu_forward(const SwigluForwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::activation, 5 * a.y.elements(), {a.gate_up}, {a.y, a.amax});
}

void swiglu_backward(const SwigluBackwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::activation, (a.y ? 13 : 11) * a.dy.elements(), {a.dy, a.gate_up},
        {a.d_gate_up, a.y, a.amax});
}

void swiglu_backward_fp8(const SwigluBackwardFp8Args& a, lockstep::Stream& stream) {
  count(stream, KernelKind::activation, (a.y8_turned ? 16 : 13) * a.dy.elements(), {a.dy, a.gate_up, a.amax, a.y_amax},
        {a.d8, a.d8_turned, a.scale, a.y8_turned});
}

void gelu_forward(const GeluForwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::activation, 9 * a.x.elements(), {a.x}, {a.y});
}

void gelu_backward(const GeluBackwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::activation, (a.y ? 21 : 18) * a.x.elements(), {a.dy, a.x}, {a.dx, a.y});
}

}  // namespace lockstep::meta
