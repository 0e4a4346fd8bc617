#include "kernels/swiglu.h"

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/fp8_tiles.cuh"
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

namespace {

__device__ float approximate_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of a gate. For 16-bit storage by the hardware's own exponential and reciprocal: their errors, some 2^-20 for gates of
// size ten and 2^-17 for the largest that do not vanish, are far below the rounding to come (2^-9, 2^-12). Both are
// called bare: the library's versions guard against denormal numbers, which vanish beside the 1 here, and backward
// would wait for those instructions, not for memory.
template <class S>
struct Silu {
  using T = Compute<S>;
  T below, sigmoid, gate;
  __device__ explicit Silu(T g) : gate(g) {
    if constexpr (sizeof(S) == 2) {
      below = approximate_exp2(g * -1.44269504f) + 1.0f;  // log2(e)
      sigmoid = approximate_reciprocal(below);
    } else {
      below = std::exp(-g) + T(1);
      sigmoid = T(1) / below;
    }
  }
  // As y has it: in wide types a division of its own, which rounds once less.
  __device__ T for_y() const { return sizeof(S) == 2 ? gate * sigmoid : gate / below; }
  __device__ T for_gradients() const { return gate * sigmoid; }
};

template <class S, bool Whole, bool Amax>
__global__ void forward(Rows<S> y, Rows<const S> gate_up, std::int64_t count, std::int64_t width, unsigned* amax) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_pack<S>(count, width, [&](std::int64_t row, std::int64_t c, int n) {
    const RowPlace at{row, 0};
    const S* in = gate_up[at] + c;
    T g[kPack<S>], u[kPack<S>];
    read<Whole>(g, in, n);
    read<Whole>(u, in + width, n);
    for (int i = 0; i < kPack<S>; ++i) largest.note(g[i] = Silu<S>(g[i]).for_y() * u[i]);
    write<Whole>(y[at] + c, g, n);
  });
  largest.add_to(amax);
}

template <class S>
struct Backward {
  Rows<S> d_gate_up, y;
  Rows<const S> dy, gate_up;
  std::int64_t count, width;
  unsigned* amax;
};

// A thread has two rows at once, six packs on their way: one row's would not outlast what is computed of them.
// d_gate_up may be gate_up, and y dy: a thread reads all of its elements before it writes any.
constexpr int kRowsAtOnce = 2;
template <class S, bool Whole, bool Again, bool Amax>
__global__ void __launch_bounds__(kThreads, Whole ? 4 : 2) backward(Backward<S> a) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  const std::int64_t pairs = (a.count + kRowsAtOnce - 1) / kRowsAtOnce;
  each_pack<S>(pairs, a.width, [&](std::int64_t pair, std::int64_t c, int n) {
    const std::int64_t first = pair * kRowsAtOnce;
    Pack<S> gate[kRowsAtOnce], up[kRowsAtOnce], grad[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      if (first + k >= a.count) continue;
      const RowPlace at{first + k, 0};
      const S* in = a.gate_up[at] + c;
      gate[k] = load_some<Whole>(in, n);
      up[k] = load_some<Whole>(in + a.width, n);
      grad[k] = load_some<Whole>(a.dy[at] + c, n);
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      if (first + k >= a.count) continue;
      const RowPlace at{first + k, 0};
      T g[kPack<S>], u[kPack<S>], d[kPack<S>];
      widen(g, gate[k]);
      widen(u, up[k]);
      widen(d, grad[k]);
      for (int i = 0; i < kPack<S>; ++i) {
        const Silu<S> s(g[i]);
        const T silu = s.for_gradients(), gradient = d[i];
        if constexpr (Again) d[i] = s.for_y() * u[i];
        largest.note(g[i] = gradient * u[i] * std::fma(silu, T(1) - s.sigmoid, s.sigmoid));
        largest.note(u[i] = gradient * silu);
      }
      if (!Amax || a.d_gate_up) {
        S* out = a.d_gate_up[at] + c;
        write<Whole>(out, g, n);
        write<Whole>(out + a.width, u, n);
      }
      if constexpr (Again) write<Whole>(a.y[at] + c, d, n);
    }
  });
  largest.add_to(a.amax);
}

struct BackwardFp8 {
  unsigned char *d8, *d8_turned, *y8_turned;
  float* scale;
  const bf16 *dy, *gate_up;
  const float *amax, *y_amax;
  std::int64_t dy_stride, gate_up_stride;
  std::int64_t count, width;
};

// A tile of the gates' gradients, the same tile of the others', and, with Again, of y: a thread computes a square of
// each, row by row, by the operations of `backward`, and rounds to bf16 first, as that does.
template <class Q, bool Again>
__global__ void __launch_bounds__(kThreads, 3) backward_fp8(const BackwardFp8 a) {
  const float scale = __uint_as_float(fp8_scale_bits(__float_as_uint(*a.amax), kLargestExponent<Q>));
  const float inverse = 1.0f / scale;
  const float inverse_y =
      Again ? 1.0f / __uint_as_float(fp8_scale_bits(__float_as_uint(*a.y_amax), kLargestExponent<f8e4m3>)) : 0.0f;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *a.scale = scale;
  __shared__ TurnedTile gates, ups, actives;
  const TileSquare at;
  const std::int64_t row = at.row(), column = at.column();
  if (row < a.count && column < a.width) {
#pragma unroll
    for (int first = 0; first < 8; first += kRowsAtOnce) {
      Pack<bf16> gate[kRowsAtOnce], up[kRowsAtOnce], grad[kRowsAtOnce];
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
        const bf16* in = a.gate_up + (row + first + k) * a.gate_up_stride + column;
        gate[k] = load_pack(in);
        up[k] = load_pack(in + a.width);
        grad[k] = load_pack(a.dy + (row + first + k) * a.dy_stride + column);
      }
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
        float g[8], u[8], d[8];
        widen(g, gate[k]);
        widen(u, up[k]);
        widen(d, grad[k]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const Silu<bf16> s(g[i]);
          const float silu = s.for_gradients(), gradient = d[i];
          if constexpr (Again) d[i] = s.for_y() * u[i];
          g[i] = gradient * u[i] * std::fma(silu, 1.0f - s.sigmoid, s.sigmoid);
          u[i] = gradient * silu;
        }
        const uint2 of_gate = to_fp8<Q>(narrow_pack<bf16>(g), inverse),
                    of_up = to_fp8<Q>(narrow_pack<bf16>(u), inverse);
        unsigned char* out = a.d8 + (row + first + k) * 2 * a.width + column;
        *reinterpret_cast<uint2*>(out) = of_gate;
        *reinterpret_cast<uint2*>(out + a.width) = of_up;
        put_row(gates, at, first + k, of_gate);
        put_row(ups, at, first + k, of_up);
        if constexpr (Again) put_row(actives, at, first + k, to_fp8<f8e4m3>(narrow_pack<bf16>(d), inverse_y));
      }
    }
  }
  __syncthreads();
  turn_and_store(a.d8_turned, gates, at, a.count, a.width);
  turn_and_store(a.d8_turned + a.width * a.count, ups, at, a.count, a.width);
  if constexpr (Again) turn_and_store(a.y8_turned, actives, at, a.count, a.width);
}

}  // namespace

void swiglu_forward(const SwigluForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.y.dim(0), width = a.y.dim(1);
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Rows<S> y = rows<S>(a.y);
    const Rows<const S> gate_up = rows<S>(a.gate_up);
    const bool whole = in_packs(width, y, gate_up);
    auto kernel = whole ? forward<S, true, false> : forward<S, false, false>;
    if constexpr (std::is_same_v<S, bf16>)
      if (a.amax) kernel = whole ? forward<S, true, true> : forward<S, false, true>;
    const auto [blocks, threads] = pack_grid(count, width, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(y, gate_up, count, width, bits_of(a.amax));
  });
  check_launch("swiglu_forward");
}

void swiglu_backward(const SwigluBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t count = a.dy.dim(0), width = a.dy.dim(1);
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Backward<S> args{.d_gate_up = rows<S>(a.d_gate_up),
                           .y = rows<S>(a.y),
                           .dy = rows<S>(a.dy),
                           .gate_up = rows<S>(a.gate_up),
                           .count = count,
                           .width = width,
                           .amax = bits_of(a.amax)};
    const bool whole = in_packs(width, args.d_gate_up, args.y, args.dy, args.gate_up), again = !a.y.none();
    const auto chosen = [&](auto amax) {
      return whole   ? again ? backward<S, true, true, amax> : backward<S, true, false, amax>
               : again ? backward<S, false, true, amax>
                     : backward<S, false, false, amax>;
    };
    auto kernel = chosen(std::false_type{});
    if constexpr (std::is_same_v<S, bf16>)
      if (a.amax) kernel = chosen(std::true_type{});
    const auto [blocks, threads] = pack_grid(ceil_div(count, kRowsAtOnce), width, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(args);
  });
  check_launch("swiglu_backward");
}

void swiglu_backward_fp8(const SwigluBackwardFp8Args& a, lockstep::Stream& stream) {
  if (a.dy.elements() == 0) return;
  const auto bytes = [](const Tensor& t) { return static_cast<unsigned char*>(t.raw()); };
  const BackwardFp8 args{.d8 = bytes(a.d8),
                         .d8_turned = bytes(a.d8_turned),
                         .y8_turned = bytes(a.y8_turned),
                         .scale = a.scale.data<float>(),
                         .dy = a.dy.data<bf16>(),
                         .gate_up = a.gate_up.data<bf16>(),
                         .amax = a.amax.data<float>(),
                         .y_amax = a.y_amax ? a.y_amax.data<float>() : nullptr,
                         .dy_stride = a.dy.stride(0),
                         .gate_up_stride = a.gate_up.stride(0),
                         .count = a.dy.dim(0),
                         .width = a.dy.dim(1)};
  const auto launch = [&]<class Q>(TypeTag<Q>) {
    const auto kernel = a.y8_turned ? backward_fp8<Q, true> : backward_fp8<Q, false>;
    kernel<<<tile_grid(args.count, args.width), kThreads, 0, native(stream)>>>(args);
  };
  if (a.d8.dtype() == DType::f8e4m3)
    launch(TypeTag<f8e4m3>{});
  else
    launch(TypeTag<f8e5m2>{});
  check_launch("swiglu_backward_fp8");
}

}  // namespace lockstep::cuda
