// Products of small dense tiles in the compute type, and the packing around them: what attention is made of.
//
// A tile's rows are padded to whole vectors and the padding is zero, so no product has a tail. Every element of a
// product is summed over k ascending in one chain of fmas, however rows and columns are grouped into registers.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd.h"

namespace lockstep::cpu {

// c[i][j] (+)= Σ_k a[i·a_row + k·a_k] · b[k][j] for i < m and j < vectors·kLanes; rows of b and c are ldb and ldc
// apart; k > 0.
template <class T>
struct TileProduct {
  T* c;
  std::int64_t ldc;
  const T* a;
  std::int64_t a_row, a_k;
  const T* b;
  std::int64_t ldb;
  std::int64_t m, k;
  bool accumulate;

  template <int kRows, int kVectors, bool kAdds>
  [[gnu::always_inline]] void block(std::int64_t i, std::int64_t j) const {
    constexpr int W = kLanes<T>;
    Vec<T> sums[kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = kAdds ? load(c + (i + r) * ldc + j + v * W) : Vec<T>{};
    const T* from = a + i * a_row;
    const T* with = b + j;
    std::int64_t step = k;
    do {
      Vec<T> right[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) right[v] = load(with + v * W);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec<T> left = broadcast(from[r * a_row]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
      }
      from += a_k;
      with += ldb;
    } while (--step > 0);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(c + (i + r) * ldc + j + v * W, sums[r][v]);
  }

  // Blocks of 24 sums, or near: what 32 registers hold beside the operands, and enough to hide the latency of an fma.
  template <int kVectors, bool kAdds>
  [[gnu::noinline]] static void columns(const TileProduct p, std::int64_t j) {
    constexpr int kTall = kVectors == 4 ? 6 : kVectors == 3 ? 8 : 12, kShort = kVectors == 4 ? 2 : 4;
    std::int64_t i = 0;
    for (; i + kTall <= p.m; i += kTall) p.template block<kTall, kVectors, kAdds>(i, j);
    for (; i + kShort <= p.m; i += kShort) p.template block<kShort, kVectors, kAdds>(i, j);
    for (; i < p.m; ++i) p.template block<1, kVectors, kAdds>(i, j);
  }
  template <int kVectors>
  void columns(std::int64_t j) const {
    accumulate ? columns<kVectors, true>(*this, j) : columns<kVectors, false>(*this, j);
  }

  void run(std::int64_t vectors) const {
    constexpr int W = kLanes<T>;
    std::int64_t v = 0;
    for (; v + 4 <= vectors; v += 4) columns<4>(v * W);
    if (vectors - v == 3) columns<3>(v * W);
    if (vectors - v == 2) columns<2>(v * W);
    if (vectors - v == 1) columns<1>(v * W);
  }
};

// Rows of a tile in the compute type, `stride` apart.
template <class T>
struct TileRows {
  const T* data;
  std::int64_t stride;
};

// to[r][0 … padded) = from[r·stride …] with zeros after the columns there are; rows beyond `rows` up to `all_rows` are
// zero.
template <class S, class T>
void pack(T* to, std::int64_t padded, const S* from, std::int64_t stride, std::int64_t rows, std::int64_t all_rows,
          std::int64_t columns) {
  constexpr int W = kLanes<T>;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t i = 0;
    for (; i + W <= columns; i += W) store(to + r * padded + i, load(from + r * stride + i));
    if (i < columns) store(to + r * padded + i, load_some(from + r * stride + i, columns - i));
  }
  std::fill(to + rows * padded, to + all_rows * padded, T(0));
}

// The same rows in place, if they can be read as they are: no padding wanted, nothing to convert. Else packed.
template <class S, class T>
TileRows<T> rows_in_place(T* room, std::int64_t padded, const S* from, std::int64_t stride, std::int64_t rows,
                          std::int64_t all_rows, std::int64_t columns) {
  if constexpr (std::is_same_v<S, T>)
    if (rows == all_rows && columns == padded) return {from, stride};
  pack(room, padded, from, stride, rows, all_rows, columns);
  return {room, padded};
}

namespace detail {
// Transposes a square of kLanes vectors: log2(kLanes) rounds, each exchanging neighbours `step` apart.
template <class T, int kStep = 1>
[[gnu::always_inline]] inline void transpose_square(Vec<T>* v) {
  if constexpr (kStep < kLanes<T>) {
    constexpr int W = kLanes<T>;
    using Int = typename VecOf<T>::Int;
    Int low{}, high{};
    for (int i = 0; i < W; ++i) {
      low[i] = (i & kStep) ? W + (i ^ kStep) : i;
      high[i] = (i & kStep) ? W + i : (i ^ kStep);
    }
    for (int i = 0; i < W; ++i)
      if (!(i & kStep)) {
        const Vec<T> a = v[i], b = v[i + kStep];
        v[i] = __builtin_shuffle(a, b, low);
        v[i + kStep] = __builtin_shuffle(a, b, high);
      }
    transpose_square<T, kStep * 2>(v);
  }
}
}  // namespace detail

// to[c][r] = from[r][c]; both extents are multiples of kLanes.
template <class T>
void transpose(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t columns) {
  constexpr int W = kLanes<T>;
  for (std::int64_t r = 0; r < rows; r += W)
    for (std::int64_t c = 0; c < columns; c += W) {
      Vec<T> square[W];
      for (int i = 0; i < W; ++i) square[i] = load(from + (r + i) * from_stride + c);
      detail::transpose_square<T>(square);
      for (int i = 0; i < W; ++i) store(to + (c + i) * to_stride + r, square[i]);
    }
}

}  // namespace lockstep::cpu
