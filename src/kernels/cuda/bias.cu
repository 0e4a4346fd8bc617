#include "kernels/bias.h"

#include "kernels/cuda/column_sums.cuh"

namespace lockstep::cuda {

namespace {
template <class S>
struct Term {
  Rows<const S> dy;
  __device__ Compute<S> operator()(std::int64_t row, std::int64_t c) const { return widen(dy[row][c]); }
};
}  // namespace

void bias_backward(const BiasBackwardArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.dy.dtype(), a.dbias.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    column_sums<Compute<S>>("bias_backward", stream, a.dbias.data<G>(), a.dy.dim(0), a.dy.dim(1), a.accumulate,
                            Term<S>{rows<S>(a.dy)});
  });
}

}  // namespace lockstep::cuda
