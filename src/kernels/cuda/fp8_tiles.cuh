// FP8 forms of a matrix, as it is and turned, written by tiles of it (kernels/quantize.h).
//
// A block has a tile of 128 x 128, a thread a square of 8 x 8 of it, which it turns in registers. The turned squares
// meet in shared memory, where a column's eight bytes of each square lie side by side, and leave for device memory 128
// bytes at a time. Which sixteenth of a column they lie in is turned with the column, or all columns' would be in one
// bank. Both extents of the matrix are multiples of 16, so squares are whole.
#pragma once
#include <cuda_fp8.h>

#include "kernels/cuda/packs.cuh"
#include "kernels/fp8_scale.h"
#include "tensor/fp8.h"

namespace lockstep::cuda {

template <class Q>
constexpr __nv_fp8_interpretation_t kInterpretation = std::is_same_v<Q, f8e4m3> ? __NV_E4M3 : __NV_E5M2;
template <class Q>
constexpr int kLargestExponent = std::is_same_v<Q, f8e4m3> ? 8 : 15;

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

// Column `j` of a square.
__device__ inline uint2 turned_column(const uint2 (&square)[8], int j) {
  const auto word = [&](int i) { return j < 4 ? square[i].x : square[i].y; };
  return make_uint2(bytes_of(word(0), word(1), word(2), word(3), j % 4),
                    bytes_of(word(4), word(5), word(6), word(7), j % 4));
}

constexpr int kTile = 128, kSide = kTile / 8;
static_assert(kSide * kSide == kThreads);

// Where a thread's square is.
struct TileSquare {
  int across, down;  // of the tile's squares
  std::int64_t first_row, first_column;

  __device__ TileSquare()
      : across(threadIdx.x % kSide),
        down(threadIdx.x / kSide),
        first_row(static_cast<std::int64_t>(blockIdx.y) * kTile),
        first_column(static_cast<std::int64_t>(blockIdx.x) * kTile) {}
  __device__ std::int64_t row() const { return first_row + down * 8; }
  __device__ std::int64_t column() const { return first_column + across * 8; }
};
inline dim3 tile_grid(std::int64_t rows, std::int64_t columns) {
  return dim3(static_cast<unsigned>(ceil_div(columns, kTile)), static_cast<unsigned>(ceil_div(rows, kTile)));
}

// A tile's columns, in shared memory. After all threads have put their squares, and met, all of them store.
using TurnedTile = uint2[kTile * kSide];

__device__ inline void put_turned(TurnedTile& tile, const TileSquare& at, const uint2 (&square)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) tile[(at.across * 8 + j) * kSide + (at.down ^ at.across)] = turned_column(square, j);
}
// To the turned form of a matrix of R rows and C columns.
__device__ inline void store_turned(unsigned char* turned, const TurnedTile& tile, const TileSquare& at, std::int64_t R,
                                    std::int64_t C) {
  const std::int64_t part = at.first_row + at.across * 8;  // of a column
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int c = k * kSide + at.down;
    if (part < R && at.first_column + c < C)
      *reinterpret_cast<uint2*>(turned + (at.first_column + c) * R + part) = tile[c * kSide + (at.across ^ (c / 8))];
  }
}

// The same for threads that have no registers for whole squares: they put row by row, and squares are turned when they
// are stored. Row `i` of a thread's square:
__device__ inline void put_row(TurnedTile& tile, const TileSquare& at, int i, uint2 row) {
  tile[(at.down * 8 + i) * kSide + (at.across ^ at.down)] = row;
}
// Here `across` is the square's place along the rows, and `down` along the columns.
__device__ inline void turn_and_store(unsigned char* turned, const TurnedTile& tile, const TileSquare& at,
                                      std::int64_t R, std::int64_t C) {
  const std::int64_t row = at.first_row + at.across * 8, column = at.first_column + at.down * 8;
  if (row >= R || column >= C) return;
  uint2 square[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) square[i] = tile[(at.across * 8 + i) * kSide + (at.down ^ at.across)];
#pragma unroll
  for (int j = 0; j < 8; ++j) *reinterpret_cast<uint2*>(turned + (column + j) * R + row) = turned_column(square, j);
}

}  // namespace lockstep::cuda
