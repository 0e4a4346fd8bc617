#include "kernels/tree_sum.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void tree_sum(const TreeSumArgs& a, lockstep::Stream& stream) {
  const auto ins = static_cast<std::int64_t>(a.ins.size());
  Work& work = count(stream, (ins - (a.reduction == Reduction::mean ? 0 : 1)) * a.ins[0].elements(), {}, {});
  for (const ConstTensor& in : a.ins) work.bytes_read += in.bytes();
  for (const Tensor& out : a.outs) work.bytes_written += out.bytes();
}

}  // namespace lockstep::meta
