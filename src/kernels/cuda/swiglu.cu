#include "kernels/swiglu.h"

#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

namespace {

// Of a gate. For 16-bit storage by the hardware's own exponential and reciprocal: their errors, some 2^-20 for gates of
// size ten and 2^-17 for the largest that do not vanish, are far below the rounding to come (2^-9, 2^-12).
template <class S>
struct Silu {
  using T = Compute<S>;
  T below, sigmoid, gate;
  __device__ explicit Silu(T g) : gate(g) {
    if constexpr (sizeof(S) == 2) {
      below = __expf(-g) + 1.0f;
      sigmoid = __fdividef(1.0f, below);
    } else {
      below = std::exp(-g) + T(1);
      sigmoid = T(1) / below;
    }
  }
  // As y has it: in wide types a division of its own, which rounds once less.
  __device__ T for_y() const { return sizeof(S) == 2 ? gate * sigmoid : gate / below; }
  __device__ T for_gradients() const { return gate * sigmoid; }
};

template <class S, bool Whole>
__global__ void forward(Rows<S> y, Rows<const S> gate_up, std::int64_t count, std::int64_t width) {
  using T = Compute<S>;
  each_pack<S>(count, width, [&](std::int64_t row, std::int64_t c, int n) {
    const S* in = gate_up[row] + c;
    T g[kPack<S>], u[kPack<S>];
    read<Whole>(g, in, n);
    read<Whole>(u, in + width, n);
    for (int i = 0; i < kPack<S>; ++i) g[i] = Silu<S>(g[i]).for_y() * u[i];
    write<Whole>(y[row] + c, g, n);
  });
}

// d_gate_up may be gate_up, and y dy: a thread reads all of its elements before it writes any.
template <class S, bool Whole>
__global__ void backward(Rows<S> d_gate_up, Rows<S> y, Rows<const S> dy, Rows<const S> gate_up, std::int64_t count,
                         std::int64_t width) {
  using T = Compute<S>;
  each_pack<S>(count, width, [&](std::int64_t row, std::int64_t c, int n) {
    const S* in = gate_up[row] + c;
    T g[kPack<S>], u[kPack<S>], d[kPack<S>];
    read<Whole>(g, in, n);
    read<Whole>(u, in + width, n);
    read<Whole>(d, dy[row] + c, n);
    T result[kPack<S>];
    for (int i = 0; i < kPack<S>; ++i) {
      const Silu<S> s(g[i]);
      const T silu = s.for_gradients();
      if (y) result[i] = s.for_y() * u[i];
      g[i] = d[i] * u[i] * (s.sigmoid + silu * (T(1) - s.sigmoid));
      u[i] = d[i] * silu;
    }
    S* out = d_gate_up[row] + c;
    write<Whole>(out, g, n);
    write<Whole>(out + width, u, n);
    if (y) write<Whole>(y[row] + c, result, n);
  });
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.y.dim(0), width = a.y.dim(1);
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Rows<S> y = rows<S>(a.y);
    const Rows<const S> gate_up = rows<S>(a.gate_up);
    const auto kernel = in_packs(width, y, gate_up) ? forward<S, true> : forward<S, false>;
    const auto [blocks, threads] = pack_grid(count, width, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(y, gate_up, count, width);
  });
  check_launch("swiglu_forward");
}

void swiglu_backward(const SwigluBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.dy.dim(0), width = a.dy.dim(1);
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Rows<S> d_gate_up = rows<S>(a.d_gate_up), y = rows<S>(a.y);
    const Rows<const S> dy = rows<S>(a.dy), gate_up = rows<S>(a.gate_up);
    const auto kernel = in_packs(width, d_gate_up, y, dy, gate_up) ? backward<S, true> : backward<S, false>;
    const auto [blocks, threads] = pack_grid(count, width, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(d_gate_up, y, dy, gate_up, count, width);
  });
  check_launch("swiglu_backward");
}

}  // namespace lockstep::cuda
