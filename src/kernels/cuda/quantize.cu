// The largest magnitude of a tensor, and its FP8 forms, as it is and turned, in one pass over it.
#include <cuda_fp8.h>

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/fp8_scale.h"
#include "kernels/quantize.h"
#include "tensor/fp8.h"

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

template <class Q>
constexpr __nv_fp8_interpretation_t kInterpretation = std::is_same_v<Q, f8e4m3> ? __NV_E4M3 : __NV_E5M2;

// Eight values, in order.
template <class Q>
__device__ inline uint2 to_fp8(const Pack<bf16>& p, float inverse) {
  unsigned half[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 both =
        make_float2(__uint_as_float(p.word[j] << 16) * inverse, __uint_as_float(p.word[j] & 0xffff0000u) * inverse);
    half[j] = __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, kInterpretation<Q>);
  }
  return make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
}

// Byte `i` of four words, in order.
__device__ inline unsigned bytes_of(unsigned a, unsigned b, unsigned c, unsigned d, int i) {
  const unsigned low = __byte_perm(a, b, i | (4 + i) << 4), high = __byte_perm(c, d, i | (4 + i) << 4);
  return __byte_perm(low, high, 0x5410);
}

struct QuantizeTo {
  unsigned char *q, *turned;
  float* scale;
};

// A block has a tile of 128 x 128, a thread a square of 8 x 8 of it, which it turns in registers. The turned squares
// meet in shared memory, where a column's eight bytes of each square lie side by side, and leave for device memory 128
// bytes at a time. Which sixteenth of a column they lie in is turned with the column, or all columns' would be in one
// bank.
constexpr int kTile = 128, kSide = kTile / 8;
static_assert(kSide * kSide == kThreads);

template <class Q, bool Whole, bool Straight, bool Turned>
__global__ void __launch_bounds__(kThreads) quantize_tiles(QuantizeTo to, const float* amax, const bf16* x,
                                                           std::int64_t stride, std::int64_t R, std::int64_t C) {
  constexpr int largest_exponent = std::is_same_v<Q, f8e4m3> ? 8 : 15;
  const float scale = __uint_as_float(fp8_scale_bits(__float_as_uint(*amax), largest_exponent));
  const float inverse = 1.0f / scale;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *to.scale = scale;
  __shared__ uint2 columns[kTile * kSide];
  const int across = threadIdx.x % kSide, down = threadIdx.x / kSide;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t row = first_row + down * 8, column = first_column + across * 8;
  const bool inside = row < R && column < C;  // whole squares: both extents are multiples of 16
  uint2 square[8];
  if (inside) {
    Pack<bf16> p[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i] = load_bits<Whole>(x + (row + i) * stride + column, 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) square[i] = to_fp8<Q>(p[i], inverse);
    if constexpr (Straight) {
#pragma unroll
      for (int i = 0; i < 8; ++i) *reinterpret_cast<uint2*>(to.q + (row + i) * C + column) = square[i];
    }
  }
  if constexpr (Turned) {
    if (inside) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const auto word = [&](int i) { return j < 4 ? square[i].x : square[i].y; };
        columns[(across * 8 + j) * kSide + (down ^ across)] = make_uint2(
            bytes_of(word(0), word(1), word(2), word(3), j % 4), bytes_of(word(4), word(5), word(6), word(7), j % 4));
      }
    }
    __syncthreads();
    const std::int64_t part = first_row + across * 8;  // of a column
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int c = k * kSide + down;
      if (part < R && first_column + c < C)
        *reinterpret_cast<uint2*>(to.turned + (first_column + c) * R + part) = columns[c * kSide + (across ^ (c / 8))];
    }
  }
}

template <class Q>
void launch(const QuantizeArgs& a, Stream& stream) {
  const std::int64_t R = a.x.dim(0), C = a.x.dim(1);
  const QuantizeTo to{static_cast<unsigned char*>(a.q.raw()), static_cast<unsigned char*>(a.turned.raw()),
                      a.scale.data<float>()};
  const auto chosen = [&](auto whole) {
    return a.q && a.turned ? quantize_tiles<Q, whole, true, true>
           : a.q           ? quantize_tiles<Q, whole, true, false>
                           : quantize_tiles<Q, whole, false, true>;
  };
  const auto kernel = in_packs(C, rows<bf16>(a.x)) ? chosen(std::true_type{}) : chosen(std::false_type{});
  const dim3 grid(static_cast<unsigned>(ceil_div(C, kTile)), static_cast<unsigned>(ceil_div(R, kTile)));
  kernel<<<grid, kThreads, 0, native(stream)>>>(to, a.amax.data<float>(), a.x.data<bf16>(), a.x.stride(0), R, C);
}

}  // namespace

void amax(const AmaxArgs& a, lockstep::Stream& stream) {
  const std::int64_t R = a.x.dim(0), C = a.x.dim(1);
  begin_amax(a.amax, stream);
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
