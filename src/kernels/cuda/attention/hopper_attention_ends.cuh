// What comes before and after the tiles of Hopper's attention backward: statistics, and dq in bf16.
//
// Both only move memory, sixteen bytes per thread at a time.
#pragma once
#include "kernels/cuda/attention/hopper_attention_tiles.cuh"
#include "kernels/cuda/attention/hopper_products.cuh"

namespace lockstep::cuda::hopper {

struct BeginCall {
  const __nv_bfloat16 *d_o, *o;
  Strides of_do, of_o;
  const float* lse_given;  // (B, H, T), natural
  float *lse, *delta;      // as BackwardCall has them
  int* first;
  unsigned* turns;
  std::int64_t turn_count;  // with the next block's number
  Sight sight;
  int padded, heads;
  std::int64_t rows;  // of all samples and heads, padded
};

// A row of d_o and o is 8 or 16 neighbouring threads'. Rows beyond the last token, which fill its tile, get an lse of
// infinity: their probabilities are 0. So do rows that see no keys.
template <class Tile>
__global__ void __launch_bounds__(256) begin_backward(const BeginCall call) {
  constexpr int kLanes = Tile::kWidth / 8;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (thread < call.turn_count) call.turns[thread] = 0;
  const std::int64_t row = thread / kLanes;  // heads, then tokens, as d_o lies
  if (row >= call.rows) return;              // whole warps: rows are a multiple of 64
  const std::int64_t head = row % call.heads, t = row / call.heads % call.padded, b = row / call.heads / call.padded;
  float sum = 0;
  const bool real = t < call.sight.queries;
  if (real) {
    const auto eight = [&](const __nv_bfloat16* from, const Strides& strides) {
      return *reinterpret_cast<const uint4*>(from + b * strides.sample + t * strides.token + head * strides.head +
                                             thread % kLanes * 8);
    };
    const uint4 x = eight(call.d_o, call.of_do), y = eight(call.o, call.of_o);
    const unsigned xs[] = {x.x, x.y, x.z, x.w}, ys[] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum = __fmaf_rn(__uint_as_float(xs[i] << 16), __uint_as_float(ys[i] << 16), sum);
      sum = __fmaf_rn(__uint_as_float(xs[i] & 0xffff0000u), __uint_as_float(ys[i] & 0xffff0000u), sum);
    }
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (thread % kLanes != 0) return;
  const std::int64_t of_head = b * call.heads + head;
  const std::int64_t at = of_head * call.padded + t / Tile::kQueries * Tile::kQueries +
                          statistics_place(static_cast<int>(t % Tile::kQueries));
  constexpr float kLog2OfE = 1.4426950408889634f;
  call.delta[at] = sum;
  const float lse = real ? call.lse_given[of_head * call.sight.queries + t] * kLog2OfE : INFINITY;
  call.lse[at] = lse == -INFINITY ? INFINITY : lse;
  if (call.first && head == 0)
    call.first[at - b * (call.heads - 1) * call.padded] =
        call.sight.first_seen(static_cast<int>(b), static_cast<int>(t));
}

struct EndCall {
  const float* sums;  // as BackwardCall::dq
  __nv_bfloat16* dq;
  Strides strides;
  Sight sight;
  int tiles, heads;
  float scale;
};

// A block makes the 64 x 64 of one computing group; a thread eight columns of two rows, which four threads' registers
// held in pairs. Where queries see no tile of keys, nobody has stored.
template <class Tile>
__global__ void __launch_bounds__(256) end_backward(const EndCall call) {
  const int eight = static_cast<int>(threadIdx.x) % 8, pair = static_cast<int>(threadIdx.x) / 8;
  const int w = static_cast<int>(blockIdx.x) % 2, index = static_cast<int>(blockIdx.x) / 2;
  const int tile = index % call.tiles, head = index / call.tiles % call.heads, b = index / call.tiles / call.heads;
  const auto* from = reinterpret_cast<const float4*>(call.sums + std::size_t{blockIdx.x} * (Tile::kDqPart / 4)) +
                     eight * 128 + pair * 4;
  float x[2][8] = {};
  const bool none = call.sight.first_seen(b, tile * Tile::kQueries) / Tile::kKeys * Tile::kKeys >= call.sight.keys;
#pragma unroll
  for (int c = 0; c < 4 && !none; ++c) {
    const float4 held = from[c];
    x[0][2 * c] = held.x * call.scale, x[0][2 * c + 1] = held.y * call.scale;
    x[1][2 * c] = held.z * call.scale, x[1][2 * c + 1] = held.w * call.scale;
  }
  const int column = (Tile::kDqByColumns ? w * 64 : 0) + eight * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = (Tile::kDqByColumns ? 0 : w * 64) + pair / 8 * 16 + pair % 8 + half * 8;
    const std::int64_t t = std::int64_t{tile} * Tile::kQueries + row;
    if (t >= call.sight.queries) continue;
    const float* y = x[half];
    *reinterpret_cast<uint4*>(call.dq + b * call.strides.sample + t * call.strides.token + head * call.strides.head +
                              column) =
        make_uint4(pack(y[0], y[1]), pack(y[2], y[3]), pack(y[4], y[5]), pack(y[6], y[7]));
  }
}

}  // namespace lockstep::cuda::hopper
