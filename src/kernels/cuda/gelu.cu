#include "kernels/gelu.h"

#include "kernels/cuda/packs.cuh"

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

// With t = tanh of the inner cubic, (1 + t)/2 is a sigmoid of twice that. For 16-bit storage it is taken so, by the
// hardware's own exponential and reciprocal: nothing cancels, and their errors are far below the rounding to come.
template <class S>
struct Gelu {
  using T = Compute<S>;
  T v, t_or_sigmoid;
  __device__ explicit Gelu(T x) : v(bounded(x)) {
    const T inner = (v + v * v * v * T(kCube)) * T(kRoot);
    if constexpr (sizeof(S) == 2)
      t_or_sigmoid = __fdividef(1.0f, __expf(-2.0f * inner) + 1.0f);
    else
      t_or_sigmoid = std::tanh(inner);
  }
  __device__ T value(T x) const { return sizeof(S) == 2 ? x * t_or_sigmoid : x * T(0.5) * (t_or_sigmoid + T(1)); }
  __device__ T slope() const {
    const T inner_slope = (v * v * T(3 * kCube) + T(1)) * T(kRoot);
    if constexpr (sizeof(S) == 2) {
      const T s = t_or_sigmoid;
      return s + v * T(2) * s * (T(1) - s) * inner_slope;
    } else {
      const T t = t_or_sigmoid;
      return (t + T(1)) * T(0.5) + v * T(0.5) * (T(1) - t * t) * inner_slope;
    }
  }
};

template <class S, bool Whole>
__global__ void forward(Rows<S> y, Rows<const S> x, std::int64_t count, std::int64_t columns) {
  each_pack<S>(count, columns, [&](std::int64_t row, std::int64_t c, int n) {
    Compute<S> v[kPack<S>];
    read<Whole>(v, x[row] + c, n);
    for (int i = 0; i < kPack<S>; ++i) v[i] = Gelu<S>(v[i]).value(v[i]);
    write<Whole>(y[row] + c, v, n);
  });
}

// dx and y may overlay dy and x: a thread reads all of its elements before it writes any.
template <class S, bool Whole>
__global__ void backward(Rows<S> dx, Rows<S> y, Rows<const S> dy, Rows<const S> x, std::int64_t count,
                         std::int64_t columns) {
  each_pack<S>(count, columns, [&](std::int64_t row, std::int64_t c, int n) {
    Compute<S> v[kPack<S>], d[kPack<S>];
    read<Whole>(v, x[row] + c, n);
    read<Whole>(d, dy[row] + c, n);
    for (int i = 0; i < kPack<S>; ++i) {
      const Gelu<S> gelu(v[i]);
      d[i] = d[i] * gelu.slope();
      if (y) v[i] = gelu.value(v[i]);
    }
    write<Whole>(dx[row] + c, d, n);
    if (y) write<Whole>(y[row] + c, v, n);
  });
}

}  // namespace

void gelu_forward(const GeluForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.x.dim(0), columns = a.x.dim(1);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Rows<S> y = rows<S>(a.y);
    const Rows<const S> x = rows<S>(a.x);
    const auto kernel = in_packs(columns, y, x) ? forward<S, true> : forward<S, false>;
    const auto [blocks, threads] = pack_grid(count, columns, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(y, x, count, columns);
  });
  check_launch("gelu_forward");
}

void gelu_backward(const GeluBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.x.dim(0), columns = a.x.dim(1);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Rows<S> dx = rows<S>(a.dx), y = rows<S>(a.y);
    const Rows<const S> dy = rows<S>(a.dy), x = rows<S>(a.x);
    const auto kernel = in_packs(columns, dx, y, dy, x) ? backward<S, true> : backward<S, false>;
    const auto [blocks, threads] = pack_grid(count, columns, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(dx, y, dy, x, count, columns);
  });
  check_launch("gelu_backward");
}

}  // namespace lockstep::cuda
