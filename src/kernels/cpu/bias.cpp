#include "kernels/bias.h"

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

void bias_backward(const BiasBackwardArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.dy.dtype(), a.dbias.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    const auto dy = rows<S>(a.dy);
    column_sums<Compute<S>>(Stream::of(stream), a.dbias.data<G>(), a.dy.dim(0), a.dy.dim(1), a.accumulate,
                            [&](std::int64_t row, std::int64_t c, auto load) { return load(dy[row] + c); });
  });
}

}  // namespace lockstep::cpu
