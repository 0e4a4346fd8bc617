#include "kernels/quantize.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.x.elements(), {a.x, a.joins ? ConstTensor(a.amax) : ConstTensor{}},
        {a.amax});
}

void quantize(const QuantizeArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = a.norm.mean ? 5 : a.norm.rstd ? 3 : 1;
  count(stream, KernelKind::elementwise, flops * a.x.elements(),
        {a.x, a.amax, a.norm.weight, a.norm.bias, a.norm.mean, a.norm.rstd}, {a.q, a.turned, a.scale});
}

}  // namespace lockstep::meta
