#include "kernels/attention_merge.h"

#include "kernels/operands.h"
#include "tensor/overlap.h"

namespace lockstep {

void attention_merge(const AttentionMergeArgs& a, Stream& stream) {
  const char* op = "attention_merge";
  LOCKSTEP_CHECK(a.part.dims() == 4, "{}: part is {}, expected 4 dims", op, a.part.shape());
  const DType type = a.part.dtype();
  const Shape statistics{a.part.dim(0), a.part.dim(2), a.part.dim(1)};
  Operands(op, stream)
      .floats("part", a.part)
      .have("part", a.part, a.part.shape(), type)
      .gradient("o", a.o, a.part.shape(), type)
      .have_flat("lse", a.lse, statistics, accumulator_of(type))
      .have_flat("part_lse", a.part_lse, statistics, accumulator_of(type));
  LOCKSTEP_CHECK(apart(a.o, a.part), "{}: o overlaps part", op);
  LOCKSTEP_CHECK(apart(a.lse, a.part_lse), "{}: lse overlaps part_lse", op);
  dispatch(cpu::attention_merge, cuda::attention_merge, meta::attention_merge, a, stream);
}

}  // namespace lockstep
