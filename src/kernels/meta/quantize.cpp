#include "kernels/quantize.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.x.elements(), {a.x}, {a.amax});
}

void quantize(const QuantizeArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.x.elements(), {a.x, a.amax}, {a.q, a.turned, a.scale});
}

}  // namespace lockstep::meta
