#include "kernels/bias.h"

#include "kernels/cuda/column_sums.cuh"

namespace lockstep::cuda {

namespace {
template <class S>
struct Term {
  using Stored = S;
  static constexpr int kSums = 1, kInFlight = 6;
  using Loaded = Pack<S>;
  Rows<const S> dy;

  template <bool Whole>
  __device__ Loaded load(std::int64_t row, std::int64_t c, int count) const {
    return load_some<Whole>(dy[RowPlace{row, 0}] + c, count);
  }
  __device__ void add(Compute<S> (&total)[kSums][kPack<S>], const Loaded& l) const {
    Compute<S> g[kPack<S>];
    widen(g, l);
    for (int i = 0; i < kPack<S>; ++i) total[0][i] += g[i];
  }
};
}  // namespace

void bias_backward(const BiasBackwardArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.dy.dtype(), a.dbias.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    const Term<S> term{rows<S>(a.dy)};
    column_sums("bias_backward", stream, SumResults<G, 1>{{a.dbias.data<G>()}}, a.dy.dim(0), a.dy.dim(1), a.accumulate,
                term, in_packs(a.dy.dim(1), term.dy));
  });
}

}  // namespace lockstep::cuda
