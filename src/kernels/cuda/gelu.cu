#include "kernels/gelu.h"

#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

constexpr double kRoot = 0.79788456080286535588;  // sqrt(2/π)
constexpr double kCube = 0.044715;

// Beyond 30 the function is x or 0 to the last bit and its slope 1 or 0, but powers of x overflow. A NaN passes.
template <class T>
__device__ T bounded(T v) {
  v = v > T(30) ? T(30) : v;
  return v < T(-30) ? T(-30) : v;
}

template <class S>
__global__ void forward(Rows<S> y, Rows<const S> x, std::int64_t count, std::int64_t columns) {
  using T = Compute<S>;
  each_element(count, columns, [&](std::int64_t row, std::int64_t c) {
    const T v = widen(x[row][c]);
    const T u = bounded(v), t = std::tanh((u + u * u * u * T(kCube)) * T(kRoot));
    y[row][c] = narrow<S>(v * T(0.5) * (t + T(1)));
  });
}

template <class S>
__global__ void backward(Rows<S> dx, Rows<const S> dy, Rows<const S> x, std::int64_t count, std::int64_t columns) {
  using T = Compute<S>;
  each_element(count, columns, [&](std::int64_t row, std::int64_t c) {
    const T v = bounded(widen(x[row][c]));
    const T t = std::tanh((v + v * v * v * T(kCube)) * T(kRoot));
    const T inner = (v * v * T(3 * kCube) + T(1)) * T(kRoot);
    const T slope = (t + T(1)) * T(0.5) + v * T(0.5) * (T(1) - t * t) * inner;
    dx[row][c] = narrow<S>(widen(dy[row][c]) * slope);
  });
}

}  // namespace

void gelu_forward(const GeluForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.x.dim(0), columns = a.x.dim(1);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    forward<S><<<element_blocks(count, columns), threads_for(columns), 0, native(stream)>>>(rows<S>(a.y), rows<S>(a.x),
                                                                                            count, columns);
  });
  check_launch("gelu_forward");
}

void gelu_backward(const GeluBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.x.dim(0), columns = a.x.dim(1);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    backward<S><<<element_blocks(count, columns), threads_for(columns), 0, native(stream)>>>(
        rows<S>(a.dx), rows<S>(a.dy), rows<S>(a.x), count, columns);
  });
  check_launch("gelu_backward");
}

}  // namespace lockstep::cuda
