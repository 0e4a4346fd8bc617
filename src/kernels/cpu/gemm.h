// The inner product of matmul: packed slivers and the register block that multiplies them.
//
// A is packed in slivers of kRows rows, B in slivers of kColumns columns, both kDepth deep; a register block is one
// sliver of each. Every element of C is summed over k ascending, in one chain of fmas within a depth block and one
// addition for each block, wherever in the matrix it stands: the bits depend on K alone, not on tiles, threads or the
// other extents.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace lockstep::cpu {

template <class T>
struct Gemm {
  static constexpr int kLane = kLanes<T>;
  static constexpr int kRows = 14,
                       kVectors = 2;  // 28 vectors of sums leave room for two of B and one of A in 32 registers
  static constexpr int kColumns = kVectors * kLane;
  static constexpr std::int64_t kDepth = 256;  // a sliver of B fills two thirds of a 48 KiB L1
  // Rows of an A sliver lie this far apart when k runs along them; the 16 keep 14 rows from meeting in the same cache
  // sets.
  static constexpr std::int64_t kStride = kDepth + 16;
  static constexpr std::int64_t kSliverA = kRows * kStride, kSliverB = kColumns * kDepth;

  // Packs rows [0, rows) of op(A), depth deep, from `from`. k along the rows of memory: plain copies, [row][k].
  template <class S>
  static void pack_a(T* to, const S* from, std::int64_t stride, bool transposed, std::int64_t rows,
                     std::int64_t depth) {
    for (std::int64_t i = 0; i < rows; i += kRows, to += kSliverA) {
      const std::int64_t count = std::min<std::int64_t>(kRows, rows - i);
      if (!transposed) {
        for (std::int64_t r = 0; r < count; ++r)
          for_vectors<T>(depth, [&](std::int64_t k, auto load, auto store) {
            store(to + r * kStride + k, load(from + (i + r) * stride + k));
          });
        for (std::int64_t r = count; r < kRows; ++r) std::fill_n(to + r * kStride, depth, T(0));
      } else {  // [k][row]
        for (std::int64_t k = 0; k < depth; ++k)
          for (std::int64_t r = 0; r < kRows; r += kLane) {
            const std::int64_t some = std::min<std::int64_t>(kLane, kRows - r),
                               there = std::clamp<std::int64_t>(count - r, 0, some);
            store_some(to + k * kRows + r, load_some(from + k * stride + i + r, there), some);
          }
      }
    }
  }

  // Packs columns [0, columns) of op(B), depth deep, as [k][column].
  template <class S>
  static void pack_b(T* to, const S* from, std::int64_t stride, bool transposed, std::int64_t columns,
                     std::int64_t depth) {
    for (std::int64_t j = 0; j < columns; j += kColumns, to += kSliverB) {
      const std::int64_t count = std::min<std::int64_t>(kColumns, columns - j);
      if (!transposed) {
        for (std::int64_t k = 0; k < depth; ++k) {
          const S* row = from + k * stride + j;
          if (count == kColumns)
            for (int v = 0; v < kVectors; ++v) store(to + k * kColumns + v * kLane, load(row + v * kLane));
          else
            for (std::int64_t c = 0; c < kColumns; ++c)
              to[k * kColumns + c] = c < count ? static_cast<T>(row[c]) : T(0);
        }
      } else {
        for (int v = 0; v < kVectors; ++v)
          pack_turned(to + v * kLane, from + (j + v * kLane) * stride, stride, count - v * kLane, depth);
      }
    }
  }

  // c (+)= a sliver of A times a sliver of B; c has kRows rows of kColumns, `stride` apart.
  template <bool kTransposedA>
  [[gnu::noinline]] static void block(T* c, std::int64_t stride, const T* a, const T* b, std::int64_t depth, bool add) {
    constexpr std::int64_t row_step = kTransposedA ? 1 : kStride, k_step = kTransposedA ? kRows : 1;
    // C is far away and wanted only at the end: ask for it now.
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + r * stride + v * kLane, 1);
    Vec<T> sums[kRows][kVectors];
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec<T>{};
    for (std::int64_t k = 0; k < depth; ++k, a += k_step, b += kColumns) {
      Vec<T> right[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLane);
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) {
        const Vec<T> left = broadcast(a[r * row_step]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        T* out = c + r * stride + v * kLane;
        store(out, add ? load(out) + sums[r][v] : sums[r][v]);
      }
  }

 private:
  // One vector's worth of columns whose elements run along k in memory: squares of kLane x kLane are turned in
  // registers.
  template <class S>
  static void pack_turned(T* to, const S* from, std::int64_t stride, std::int64_t count, std::int64_t depth) {
    count = std::clamp<std::int64_t>(count, 0, kLane);
    for (std::int64_t k = 0; k < depth; k += kLane) {
      const std::int64_t some = std::min<std::int64_t>(kLane, depth - k);
      Vec<T> square[kLane];
      for (int i = 0; i < kLane; ++i) {
        if (i >= count)
          square[i] = Vec<T>{};
        else
          square[i] = some == kLane ? load(from + i * stride + k) : load_some(from + i * stride + k, some);
      }
      detail::transpose_square<T>(square);
      for (std::int64_t i = 0; i < some; ++i) store(to + (k + i) * kColumns, square[i]);
    }
  }
};

}  // namespace lockstep::cpu
