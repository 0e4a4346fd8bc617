#include "kernels/gelu.h"

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {
constexpr double kRoot = 0.79788456080286535588;  // sqrt(2/π)
constexpr double kCube = 0.044715;

// Beyond 30 the function is x or 0 to the last bit and its slope 1 or 0, but powers of x overflow. A NaN passes.
template <class T>
[[gnu::always_inline]] inline Vec<T> bounded(Vec<T> v) {
  v = v > broadcast(T(30)) ? broadcast(T(30)) : v;
  return v < broadcast(T(-30)) ? broadcast(T(-30)) : v;
}
}  // namespace

void gelu_forward(const GeluForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const auto y = rows<S>(a.y);
    const auto x = rows<S>(a.x);
    each_row(Stream::of(stream), a.x.dim(0), a.x.dim(1), [&](std::int64_t row, int) {
      const S* in = x[row];
      S* out = y[row];
      for_vectors<T>(a.x.dim(1), [&](std::int64_t i, auto load, auto store) {
        const Vec<T> v = load(in + i);
        const Vec<T> u = bounded<T>(v), t = tanh((u + u * u * u * T(kCube)) * T(kRoot));
        store(out + i, v * T(0.5) * (t + T(1)));
      });
    });
  });
}

void gelu_backward(const GeluBackwardArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const auto dx = rows<S>(a.dx), y = rows<S>(a.y);
    const auto x = rows<S>(a.x), dy = rows<S>(a.dy);
    each_row(Stream::of(stream), a.x.dim(0), a.x.dim(1), [&](std::int64_t row, int) {
      const S *in = x[row], *grad = dy[row];
      S *out = dx[row], *again = y ? y[row] : nullptr;
      for_vectors<T>(a.x.dim(1), [&](std::int64_t i, auto load, auto store) {
        const Vec<T> whole = load(in + i), d = load(grad + i), v = bounded<T>(whole);
        const Vec<T> t = tanh((v + v * v * v * T(kCube)) * T(kRoot));
        const Vec<T> inner = (v * v * T(3 * kCube) + T(1)) * T(kRoot);
        const Vec<T> slope = (t + T(1)) * T(0.5) + v * T(0.5) * (broadcast(T(1)) - t * t) * inner;
        store(out + i, d * slope);
        if (again) store(again + i, whole * T(0.5) * (t + T(1)));
      });
    });
  });
}

}  // namespace lockstep::cpu
