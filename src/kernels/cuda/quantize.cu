// The largest magnitude of a tensor, and its FP8 forms, as it is and turned, in one pass over it.
#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/fp8_tiles.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/quantize.h"

namespace lockstep::cuda {

namespace {

// The bits of bf16 magnitudes are in the order of the magnitudes, with NaN last, so largest ones are found among
// integers, two at a time, and their order does not matter.
__device__ unsigned largest_of(unsigned a, unsigned b) { return __vmaxu2(a, b & 0x7fff7fffu); }

// Eight values as they are stored; the first `count` of them, and zeros, where they may lie anywhere.
template <bool Whole>
__device__ inline Pack<bf16> load_bits(const bf16* from, std::int64_t count) {
  if constexpr (Whole) {
    return load_pack(from);
  } else {
    Pack<bf16> p;
    const auto at = [&](int i) { return i < count ? static_cast<unsigned>(from[i].bits) : 0u; };
#pragma unroll
    for (int j = 0; j < 4; ++j) p.word[j] = at(2 * j) | at(2 * j + 1) << 16;
    return p;
  }
}

constexpr int kAmaxPacks = 4;  // of a thread at once

// `amax` holds a float's bits, zero before.
template <bool Whole>
__global__ void __launch_bounds__(kThreads)
    amax_rows(unsigned* amax, Rows<const bf16> x, std::int64_t rows, std::int64_t columns) {
  unsigned largest = 0;
  const std::int64_t packs = (columns + kPack<bf16> - 1) / kPack<bf16>;
  const std::int64_t all = rows * packs, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto at = [&](std::int64_t pack) {
    const std::int64_t row = pack / packs, column = (pack - row * packs) * kPack<bf16>;
    return load_bits<Whole>(x[RowPlace{row, 0}] + column, columns - column);
  };
  for (; i + (kAmaxPacks - 1) * step < all; i += kAmaxPacks * step) {
    Pack<bf16> p[kAmaxPacks];
#pragma unroll
    for (int k = 0; k < kAmaxPacks; ++k) p[k] = at(i + k * step);
#pragma unroll
    for (int k = 0; k < kAmaxPacks; ++k)
#pragma unroll
      for (int j = 0; j < 4; ++j) largest = largest_of(largest, p[k].word[j]);
  }
  for (; i < all; i += step) {
    const Pack<bf16> p = at(i);
#pragma unroll
    for (int j = 0; j < 4; ++j) largest = largest_of(largest, p.word[j]);
  }
  const unsigned here = block_max(max(largest & 0xffffu, largest >> 16));
  if (threadIdx.x == 0 && here > 0) atomicMax(amax, here << 16);
}

struct QuantizeTo {
  unsigned char *q, *turned;
  float* scale;
};

// What is quantized, for a thread that has eight columns of some rows: a tensor as it is,
template <bool Whole>
struct AsItIs {
  const bf16* x;
  std::int64_t stride;

  struct Columns {};
  __device__ Columns columns(std::int64_t) const { return {}; }
  __device__ Pack<bf16> load(std::int64_t row, std::int64_t column, const Columns&) const {
    return load_bits<Whole>(x + row * stride + column, 8);
  }
};
// or what a norm gave of it, by that norm's operations.
template <bool Whole>
struct RmsNormed {
  const bf16 *x, *weight;
  const float* rstd;
  std::int64_t stride;

  struct Columns {
    float weight[8];
  };
  __device__ Columns columns(std::int64_t column) const {
    Columns c;
    widen(c.weight, load_bits<Whole>(weight + column, 8));
    return c;
  }
  __device__ Pack<bf16> load(std::int64_t row, std::int64_t column, const Columns& c) const {
    float v[8];
    widen(v, load_bits<Whole>(x + row * stride + column, 8));
    const float r = rstd[row];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * r * c.weight[i];
    return narrow_pack<bf16>(v);
  }
};
template <bool Whole>
struct LayerNormed {
  const bf16 *x, *weight, *bias;
  const float *mean, *rstd;
  std::int64_t stride;

  struct Columns {
    float weight[8], bias[8];
  };
  __device__ Columns columns(std::int64_t column) const {
    Columns c;
    widen(c.weight, load_bits<Whole>(weight + column, 8));
    widen(c.bias, load_bits<Whole>(bias + column, 8));
    return c;
  }
  __device__ Pack<bf16> load(std::int64_t row, std::int64_t column, const Columns& c) const {
    float v[8];
    widen(v, load_bits<Whole>(x + row * stride + column, 8));
    const float m = mean[row], r = rstd[row];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = std::fma((v[i] - m) * r, c.weight[i], c.bias[i]);
    return narrow_pack<bf16>(v);
  }
};

template <class Q, class Source, bool Straight, bool Turned>
__global__ void __launch_bounds__(kThreads)
    quantize_tiles(QuantizeTo to, const float* amax, const Source source, std::int64_t R, std::int64_t C) {
  const float scale = __uint_as_float(fp8_scale_bits(__float_as_uint(*amax), kLargestExponent<Q>));
  const float inverse = 1.0f / scale;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *to.scale = scale;
  __shared__ TurnedTile tile;
  const TileSquare at;
  const std::int64_t row = at.row(), column = at.column();
  const bool inside = row < R && column < C;  // whole squares: both extents are multiples of 16
  uint2 square[8];
  if (inside) {
    const auto columns = source.columns(column);
    Pack<bf16> p[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i] = source.load(row + i, column, columns);
#pragma unroll
    for (int i = 0; i < 8; ++i) square[i] = to_fp8<Q>(p[i], inverse);
    if constexpr (Straight) {
#pragma unroll
      for (int i = 0; i < 8; ++i) *reinterpret_cast<uint2*>(to.q + (row + i) * C + column) = square[i];
    }
  }
  if constexpr (Turned) {
    if (inside) put_turned(tile, at, square);
    __syncthreads();
    store_turned(to.turned, tile, at, R, C);
  }
}

template <class Q, class Source>
void launch_source(const QuantizeArgs& a, const Source& source, Stream& stream) {
  const std::int64_t R = a.x.dim(0), C = a.x.dim(1);
  const QuantizeTo to{static_cast<unsigned char*>(a.q.raw()), static_cast<unsigned char*>(a.turned.raw()),
                      a.scale.data<float>()};
  const auto kernel = a.q && a.turned ? quantize_tiles<Q, Source, true, true>
                      : a.q           ? quantize_tiles<Q, Source, true, false>
                                      : quantize_tiles<Q, Source, false, true>;
  kernel<<<tile_grid(R, C), kThreads, 0, native(stream)>>>(to, a.amax.data<float>(), source, R, C);
}

template <class Q, bool Whole>
void launch(const QuantizeArgs& a, Stream& stream) {
  const bf16* x = a.x.data<bf16>();
  const std::int64_t stride = a.x.stride(0);
  const QuantizedNorm& norm = a.norm;
  if constexpr (std::is_same_v<Q, f8e4m3>) {  // gradients are not what a norm gave
    if (norm.mean)
      return launch_source<Q>(a,
                              LayerNormed<Whole>{.x = x,
                                                 .weight = norm.weight.data<bf16>(),
                                                 .bias = norm.bias.data<bf16>(),
                                                 .mean = norm.mean.data<float>(),
                                                 .rstd = norm.rstd.data<float>(),
                                                 .stride = stride},
                              stream);
    if (norm.rstd)
      return launch_source<Q>(
          a,
          RmsNormed<Whole>{
              .x = x, .weight = norm.weight.data<bf16>(), .rstd = norm.rstd.data<float>(), .stride = stride},
          stream);
  }
  launch_source<Q>(a, AsItIs<Whole>{x, stride}, stream);
}

template <class Q>
void launch(const QuantizeArgs& a, Stream& stream) {
  const auto begins = [](const ConstTensor& t) { return t.none() || aligned(t.data<bf16>()); };
  if (in_packs(a.x.dim(1), rows<bf16>(a.x)) && begins(a.norm.weight) && begins(a.norm.bias))
    launch<Q, true>(a, stream);
  else
    launch<Q, false>(a, stream);
}

}  // namespace

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  const std::int64_t R = a.x.dim(0), C = a.x.dim(1);
  if (!a.joins) begin_amax(a.amax, stream);
  if (R == 0 || C == 0) return;
  // Few blocks, so that few meet at one address.
  const unsigned blocks = std::min(blocks_for(R * ceil_div(C, kPack<bf16>), kThreads * kAmaxPacks), 132u * 8u);
  const Rows<const bf16> x = rows<bf16>(a.x);
  const auto kernel = in_packs(C, x) ? amax_rows<true> : amax_rows<false>;
  kernel<<<blocks, kThreads, 0, native(stream)>>>(static_cast<unsigned*>(a.amax.raw()), x, R, C);
  check_launch("amax");
}

void quantize(const QuantizeArgs& a, lockstep::Stream& stream) {
  if (a.x.elements() == 0) return;
  if ((a.q ? a.q : a.turned).dtype() == DType::f8e4m3)
    launch<f8e4m3>(a, Stream::of(stream));
  else
    launch<f8e5m2>(a, Stream::of(stream));
  check_launch("quantize");
}

}  // namespace lockstep::cuda
