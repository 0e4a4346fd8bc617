#include "kernels/matmul.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void matmul(const MatmulArgs& a, lockstep::Stream& stream) {
  const std::int64_t k = a.a.dim(a.transpose_a ? 0 : 1);
  count(stream,
        {.kind = KernelKind::product,
         .dtype = a.a.dtype(),
         .m = a.c.dim(0),
         .n = a.c.dim(1),
         .k = k,
         .flops = 2 * a.c.elements() * k},
        {a.a, a.b, a.scale_a, a.scale_b, a.bias, a.addend, if_accumulating(a.accumulate, a.c)}, {a.c});
}

}  // namespace lockstep::meta
