#include "kernels/rmsnorm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  Rows<S> y, sum;
  Rows<const S> x, residual;
  const S* weight;
  Compute<S>* rstd;
  Compute<S> eps;
  std::int64_t count, columns;
};

// A block for each row. Every thread reads back only elements of `sum` that it wrote itself.
template <class S>
__global__ void forward(Forward<S> a) {
  using T = Compute<S>;
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const S* in = a.x[row];
    if (a.residual) {
      // The norm reads the sum as it was stored, rounding and all, since that is what backward will read.
      const S* other = a.residual[row];
      S* sum = a.sum[row];
      for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x)
        sum[c] = narrow<S>(widen(in[c]) + widen(other[c]));
      in = sum;
    }
    T squares = 0;
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
      const T v = widen(in[c]);
      squares = std::fma(v, v, squares);
    }
    const T r = T(1) / std::sqrt(block_sum(squares) / static_cast<T>(a.columns) + a.eps);
    if (threadIdx.x == 0) a.rstd[row] = r;
    S* out = a.y[row];
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x)
      out[c] = narrow<S>(widen(in[c]) * r * widen(a.weight[c]));
  }
}

template <class S>
struct BackwardInput {
  Rows<S> dx;
  Rows<const S> dy, x, dresidual;
  const S* weight;
  const Compute<S>* rstd;
  std::int64_t count, columns;
};

// dx may lie over dy or dresidual: the row's sum is complete before a thread writes, and then it reads only what it
// overwrites itself.
template <class S>
__global__ void backward_input(BackwardInput<S> a) {
  using T = Compute<S>;
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const S *in = a.x[row], *grad = a.dy[row];
    const S* other = a.dresidual ? a.dresidual[row] : nullptr;
    const T r = a.rstd[row];
    T dots = 0;
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x)
      dots = std::fma(widen(grad[c]) * widen(a.weight[c]), widen(in[c]), dots);
    // dx = r·(w∘dy) - x·r³·(Σ w∘dy∘x)/C; r³ alone would leave the range for large rows.
    const T pull = block_sum(dots) / static_cast<T>(a.columns) * r * r * r;
    S* out = a.dx[row];
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
      const T d = widen(grad[c]) * widen(a.weight[c]) * r - widen(in[c]) * pull;
      out[c] = narrow<S>(other ? widen(other[c]) + d : d);
    }
  }
}

template <class S>
struct WeightTerm {
  Rows<const S> dy, x;
  const Compute<S>* rstd;
  __device__ Compute<S> operator()(std::int64_t row, std::int64_t c) const {
    return widen(dy[row][c]) * (widen(x[row][c]) * rstd[row]);
  }
};

}  // namespace

void rmsnorm_forward(const RmsNormForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const Forward<S> args{.y = rows<S>(a.y),
                          .sum = rows<S>(a.sum),
                          .x = rows<S>(a.x),
                          .residual = rows<S>(a.residual),
                          .weight = a.weight.data<S>(),
                          .rstd = a.rstd.data<T>(),
                          .eps = static_cast<T>(a.eps),
                          .count = a.rstd.elements(),
                          .columns = a.x.dim(-1)};
    forward<S><<<row_blocks(args.count), threads_for(args.columns), 0, native(stream)>>>(args);
  });
  check_launch("rmsnorm_forward");
}

void rmsnorm_backward_input(const RmsNormBackwardInputArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const BackwardInput<S> args{.dx = rows<S>(a.dx),
                                .dy = rows<S>(a.dy),
                                .x = rows<S>(a.x),
                                .dresidual = rows<S>(a.dresidual),
                                .weight = a.weight.data<S>(),
                                .rstd = a.rstd.data<Compute<S>>(),
                                .count = a.rstd.elements(),
                                .columns = a.x.dim(-1)};
    backward_input<S><<<row_blocks(args.count), threads_for(args.columns), 0, native(stream)>>>(args);
  });
  check_launch("rmsnorm_backward_input");
}

void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    using T = Compute<S>;
    column_sums<T>("rmsnorm_backward_weight", stream, a.dweight.data<G>(), a.rstd.elements(), a.x.dim(-1), a.accumulate,
                   WeightTerm<S>{rows<S>(a.dy), rows<S>(a.x), a.rstd.data<T>()});
  });
}

}  // namespace lockstep::cuda
