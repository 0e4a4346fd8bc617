#include "kernels/matmul.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void matmul(const MatmulArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = 2 * a.c.elements() * a.a.dim(a.transpose_a ? 0 : 1);
  count_products(stream, flops, {a.a, a.b, a.bias, a.addend, if_accumulating(a.accumulate, a.c)}, {a.c});
}

}  // namespace lockstep::meta
