#include "kernels/swiglu.h"

#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
__global__ void forward(Rows<S> y, Rows<const S> gate_up, std::int64_t count, std::int64_t width) {
  using T = Compute<S>;
  each_element(count, width, [&](std::int64_t row, std::int64_t c) {
    const S* in = gate_up[row];
    const T g = widen(in[c]), u = widen(in[width + c]);
    y[row][c] = narrow<S>(g / (std::exp(-g) + T(1)) * u);
  });
}

// d_gate_up may be gate_up: a thread reads both of its elements before it writes them.
template <class S>
__global__ void backward(Rows<S> d_gate_up, Rows<const S> dy, Rows<const S> gate_up, std::int64_t count,
                         std::int64_t width) {
  using T = Compute<S>;
  each_element(count, width, [&](std::int64_t row, std::int64_t c) {
    const S* in = gate_up[row];
    const T g = widen(in[c]), u = widen(in[width + c]), d = widen(dy[row][c]);
    const T sigmoid = T(1) / (std::exp(-g) + T(1));
    const T silu = g * sigmoid;
    S* out = d_gate_up[row];
    out[width + c] = narrow<S>(d * silu);
    out[c] = narrow<S>(d * u * (sigmoid + silu * (T(1) - sigmoid)));
  });
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.y.dim(0), width = a.y.dim(1);
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    forward<S><<<element_blocks(count, width), threads_for(width), 0, native(stream)>>>(
        rows<S>(a.y), rows<S>(a.gate_up), count, width);
  });
  check_launch("swiglu_forward");
}

void swiglu_backward(const SwigluBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.dy.dim(0), width = a.dy.dim(1);
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    backward<S><<<element_blocks(count, width), threads_for(width), 0, native(stream)>>>(
        rows<S>(a.d_gate_up), rows<S>(a.dy), rows<S>(a.gate_up), count, width);
  });
  check_launch("swiglu_backward");
}

}  // namespace lockstep::cuda
