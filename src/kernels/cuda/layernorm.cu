#include "kernels/layernorm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  Rows<S> y, sum;
  Rows<const S> x, residual;
  const S *weight, *bias;
  Compute<S>*mean, *rstd;
  Compute<S> eps;
  std::int64_t count, columns;
};

// A block for each row. Every thread reads back only elements of `sum` that it wrote itself.
template <class S>
__global__ void forward(Forward<S> a) {
  using T = Compute<S>;
  const T width = static_cast<T>(a.columns);
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
    T total = 0;
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) total += widen(in[c]);
    const T m = block_sum(total) / width;
    // A second pass around the mean: the one-pass formula cancels when the mean is large.
    T squares = 0;
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
      const T v = widen(in[c]) - m;
      squares = std::fma(v, v, squares);
    }
    const T r = T(1) / std::sqrt(block_sum(squares) / width + a.eps);
    if (threadIdx.x == 0) {
      a.mean[row] = m;
      a.rstd[row] = r;
    }
    S* out = a.y[row];
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x)
      out[c] = narrow<S>(std::fma((widen(in[c]) - m) * r, widen(a.weight[c]), widen(a.bias[c])));
  }
}

template <class S>
struct BackwardInput {
  Rows<S> dx;
  Rows<const S> dy, x, dresidual;
  const S* weight;
  const Compute<S>*mean, *rstd;
  std::int64_t count, columns;
};

// dx may lie over dy or dresidual: the row's sums are complete before a thread writes, and then it reads only what it
// overwrites itself.
template <class S>
__global__ void backward_input(BackwardInput<S> a) {
  using T = Compute<S>;
  const T width = static_cast<T>(a.columns);
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const S *in = a.x[row], *grad = a.dy[row];
    const S* other = a.dresidual ? a.dresidual[row] : nullptr;
    const T m = a.mean[row], r = a.rstd[row];
    T plain = 0, dots = 0;
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
      const T g = widen(grad[c]) * widen(a.weight[c]);
      plain += g;
      dots = std::fma(g, (widen(in[c]) - m) * r, dots);
    }
    const T mean_g = block_sum(plain) / width, mean_gx = block_sum(dots) / width;
    S* out = a.dx[row];
    for (std::int64_t c = threadIdx.x; c < a.columns; c += blockDim.x) {
      const T hat = (widen(in[c]) - m) * r;
      const T d = (widen(grad[c]) * widen(a.weight[c]) - mean_g - hat * mean_gx) * r;
      out[c] = narrow<S>(other ? widen(other[c]) + d : d);
    }
  }
}

template <class S>
struct WeightTerm {
  Rows<const S> dy, x;
  const Compute<S>*mean, *rstd;
  __device__ Compute<S> operator()(std::int64_t row, std::int64_t c) const {
    return widen(dy[row][c]) * ((widen(x[row][c]) - mean[row]) * rstd[row]);
  }
};

template <class S>
struct BiasTerm {
  Rows<const S> dy;
  __device__ Compute<S> operator()(std::int64_t row, std::int64_t c) const { return widen(dy[row][c]); }
};

}  // namespace

void layernorm_forward(const LayerNormForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const Forward<S> args{.y = rows<S>(a.y),
                          .sum = rows<S>(a.sum),
                          .x = rows<S>(a.x),
                          .residual = rows<S>(a.residual),
                          .weight = a.weight.data<S>(),
                          .bias = a.bias.data<S>(),
                          .mean = a.mean.data<T>(),
                          .rstd = a.rstd.data<T>(),
                          .eps = static_cast<T>(a.eps),
                          .count = a.x.dim(0),
                          .columns = a.x.dim(1)};
    forward<S><<<row_blocks(args.count), threads_for(args.columns), 0, native(stream)>>>(args);
  });
  check_launch("layernorm_forward");
}

void layernorm_backward_input(const LayerNormBackwardInputArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const BackwardInput<S> args{.dx = rows<S>(a.dx),
                                .dy = rows<S>(a.dy),
                                .x = rows<S>(a.x),
                                .dresidual = rows<S>(a.dresidual),
                                .weight = a.weight.data<S>(),
                                .mean = a.mean.data<T>(),
                                .rstd = a.rstd.data<T>(),
                                .count = a.x.dim(0),
                                .columns = a.x.dim(1)};
    backward_input<S><<<row_blocks(args.count), threads_for(args.columns), 0, native(stream)>>>(args);
  });
  check_launch("layernorm_backward_input");
}

void layernorm_backward_weight(const LayerNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    using T = Compute<S>;
    const char* op = "layernorm_backward_weight";
    const std::int64_t count = a.x.dim(0), columns = a.x.dim(1);
    const auto dy = rows<S>(a.dy);
    column_sums<T>(op, stream, a.dweight.data<G>(), count, columns, a.accumulate,
                   WeightTerm<S>{dy, rows<S>(a.x), a.mean.data<T>(), a.rstd.data<T>()});
    column_sums<T>(op, stream, a.dbias.data<G>(), count, columns, a.accumulate, BiasTerm<S>{dy});
  });
}

}  // namespace lockstep::cuda
