#include "kernels/swiglu.h"

#include <vector>

#include "kernels/cpu/largest_magnitude.h"
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
  LargestMagnitude largest;
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t width = a.dy.dim(1);
    const auto d_gate_up = rows<S>(a.d_gate_up), y = rows<S>(a.y);
    const auto gate_up = rows<S>(a.gate_up), dy = rows<S>(a.dy);
    each_row(Stream::of(stream), a.dy.dim(0), width, [&](std::int64_t row, int) {
      const S *gate = gate_up[row], *up = gate + width, *grad = dy[row];
      std::vector<S> unwritten(d_gate_up ? 0 : static_cast<std::size_t>(2 * width));
      S *d_gate = d_gate_up ? d_gate_up[row] : unwritten.data(), *d_up = d_gate + width, *again = y ? y[row] : nullptr;
      for_vectors<T>(width, [&](std::int64_t i, auto load, auto store) {
        const Vec<T> g = load(gate + i), u = load(up + i), d = load(grad + i);
        const Vec<T> below = exp(-g) + T(1), sigmoid = broadcast(T(1)) / below;
        const Vec<T> silu = g * sigmoid;
        store(d_up + i, d * silu);
        store(d_gate + i, d * u * (sigmoid + silu * (broadcast(T(1)) - sigmoid)));
        if (again) store(again + i, g / below * u);
      });
      if constexpr (std::is_same_v<S, bf16>)
        if (a.amax) largest.note(d_gate, 2 * width);
    });
  });
  if (a.amax) *a.amax.data<float>() = largest.value();
}

// Through all of both in bf16, to which the definition rounds first.
void swiglu_backward_fp8(const SwigluBackwardFp8Args& a, lockstep::Stream& stream) {
  const std::int64_t rows = a.dy.dim(0), width = a.dy.dim(1);
  std::vector<bf16> gradient(static_cast<std::size_t>(rows * 2 * width)),
      active(static_cast<std::size_t>(rows * width));
  const Tensor d(gradient.data(), DType::bf16, Device::cpu, {rows, 2 * width}),
      y(active.data(), DType::bf16, Device::cpu, {rows, width});
  cpu::swiglu_backward({.d_gate_up = d, .dy = a.dy, .gate_up = a.gate_up, .y = a.y8_turned ? y : Tensor{}}, stream);
  cpu::quantize({.q = a.d8, .turned = a.d8_turned, .scale = a.scale, .x = d, .amax = a.amax}, stream);
  if (!a.y8_turned) return;
  float scale;
  const Tensor known(&scale, DType::f32, Device::cpu, {1});
  cpu::quantize({.turned = a.y8_turned, .scale = known, .x = y, .amax = a.y_amax}, stream);
}

}  // namespace lockstep::cpu
