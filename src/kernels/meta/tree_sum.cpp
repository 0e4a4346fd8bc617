#include "kernels/tree_sum.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void tree_sum(const TreeSumArgs& a, lockstep::Stream& stream) {
  const auto ins = static_cast<std::int64_t>(a.ins.size());
  Kernel sum{.kind = KernelKind::sum, .flops = (ins - (a.reduction == Reduction::mean ? 0 : 1)) * a.ins[0].elements()};
  for (const ConstTensor& in : a.ins) sum.read += in.bytes();
  for (const Tensor& out : a.outs) sum.written += out.bytes();
  count(stream, sum, {}, {});
}

}  // namespace lockstep::meta
