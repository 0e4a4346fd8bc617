#include "kernels/swiglu.h"

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"
#include "kernels/quantize.h"

namespace lockstep::cpu {

void swiglu_forward(const SwigluForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t width = a.y.dim(1);
    const auto y = rows<S>(a.y);
    const auto gate_up = rows<S>(a.gate_up);
    each_row(Stream::of(stream), a.y.dim(0), width, [&](std::int64_t row, int) {
      const S *gate = gate_up[row], *up = gate + width;
      S* out = y[row];
      for_vectors<T>(width, [&](std::int64_t i, auto load, auto store) {
        const Vec<T> g = load(gate + i);
        store(out + i, g / (exp(-g) + T(1)) * load(up + i));
      });
    });
  });
  if (a.amax) cpu::amax({.amax = a.amax, .x = a.y}, stream);
}

void swiglu_backward(const SwigluBackwardArgs& a, lockstep::Stream& stream) {
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t width = a.dy.dim(1);
    const auto d_gate_up = rows<S>(a.d_gate_up), y = rows<S>(a.y);
    const auto gate_up = rows<S>(a.gate_up), dy = rows<S>(a.dy);
    each_row(Stream::of(stream), a.dy.dim(0), width, [&](std::int64_t row, int) {
      const S *gate = gate_up[row], *up = gate + width, *grad = dy[row];
      S *d_gate = d_gate_up[row], *d_up = d_gate + width, *again = y ? y[row] : nullptr;
      for_vectors<T>(width, [&](std::int64_t i, auto load, auto store) {
        const Vec<T> g = load(gate + i), u = load(up + i), d = load(grad + i);
        const Vec<T> below = exp(-g) + T(1), sigmoid = broadcast(T(1)) / below;
        const Vec<T> silu = g * sigmoid;
        store(d_up + i, d * silu);
        store(d_gate + i, d * u * (sigmoid + silu * (broadcast(T(1)) - sigmoid)));
        if (again) store(again + i, g / below * u);
      });
    });
  });
  if (a.amax) cpu::amax({.amax = a.amax, .x = a.d_gate_up}, stream);
}

}  // namespace lockstep::cpu
