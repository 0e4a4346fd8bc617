// The inner product of matmul: packed slivers and the register block that multiplies them.
//
// A is taken in slivers of kRows rows, B in slivers of kColumns columns, both kDepth deep; a register block is one
// sliver of each. B is always packed; A only where it must be converted or turned, or where rows are missing: a row is
// read one element at a time, so it can be read in place. Every element of C is summed over k ascending, in one chain
// of fmas within a depth block and one addition for each block, wherever in the matrix it is: the bits depend on K
// alone, not on tiles, threads or the other extents.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace lockstep::cpu {

template <class T>
struct Gemm {
  static constexpr int kLane = kLanes<T>;
  // 24 vectors of sums, four of B and one of A. Taller and narrower blocks fill more registers but load more elements
  // of A for each fma: 14 x 2 reached 0.84 of the peak where 6 x 4 reaches 0.96.
  static constexpr int kRows = 6, kVectors = 4;
  static constexpr int kColumns = kVectors * kLane;
  static constexpr std::int64_t kDepth = 256;           // a sliver of B streams from L2, one of A stays in L1
  static constexpr std::int64_t kStride = kDepth + 16;  // of packed rows; the 16 keep them from sharing cache sets
  static constexpr std::int64_t kSliverA = kRows * kStride, kSliverB = kColumns * kDepth;

  // Packs rows [0, rows) of op(A), depth deep, from `from`: slivers of [row][k], or of [k][row] where A is transposed.
  template <class S>
  static void pack_a(T* to, const S* from, std::int64_t stride, bool transposed, std::int64_t rows,
                     std::int64_t depth) {
    if (transposed) {
      // Along the rows of memory, across all slivers at once: few pages, whole cache lines.
      for (std::int64_t k = 0; k < depth; ++k) {
        const S* row = from + k * stride;
        prefetch_row(row + kAhead * stride, rows);
        T* out = to + k * kRows;
        std::int64_t i = 0;
        for (; i + kRows <= rows; i += kRows, out += kSliverA) store_some(out, load_some(row + i, kRows), kRows);
        if (i < rows) store_some(out, load_some(row + i, rows - i), kRows);
      }
      return;
    }
    for (std::int64_t i = 0; i < rows; i += kRows, to += kSliverA) {
      const std::int64_t count = std::min<std::int64_t>(kRows, rows - i);
      for (std::int64_t r = 0; r < count; ++r)
        for_vectors<T>(depth, [&](std::int64_t k, auto load, auto store) {
          store(to + r * kStride + k, load(from + (i + r) * stride + k));
        });
      for (std::int64_t r = count; r < kRows; ++r) std::fill_n(to + r * kStride, depth, T(0));
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
          prefetch_row(row + kAhead * stride, count);
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

  // c (+)= a sliver of A times a sliver of B; c has kRows rows of kColumns, `stride` apart. A's rows are `a_stride`
  // apart, or it is [k][row].
  template <bool kTurnedA>
  [[gnu::noinline]] static void block(T* c, std::int64_t stride, const T* a, std::int64_t a_stride, const T* b,
                                      std::int64_t depth, bool add) {
    Vec<T> sums[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec<T>{};
    // C is far away and wanted only at the end: it is asked for now, a row at a time, or it would stand in the way of
    // B.
    T* ahead = c;
    for (std::int64_t k = 0; k < depth;) {
      if (ahead) {
        for (int v = 0; v < kVectors; ++v) __builtin_prefetch(ahead + v * kLane, 1);
        ahead = k < (kRows - 1) * 16 ? ahead + stride : nullptr;
      }
      const std::int64_t until = ahead ? std::min(depth, k + 16) : depth;
      for (; k < until; ++k, a += kTurnedA ? kRows : 1, b += kColumns) {
        Vec<T> right[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLane);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const Vec<T> left = broadcast(a[kTurnedA ? r : r * a_stride]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        T* out = c + r * stride + v * kLane;
        store(out, add ? load(out) + sums[r][v] : sums[r][v]);
      }
  }

 private:
  // Short rows far apart are no pattern that the hardware would follow: they are asked for this many rows ahead.
  static constexpr std::int64_t kAhead = 12;
  template <class S>
  static void prefetch_row(const S* row, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 64 / static_cast<std::int64_t>(sizeof(S))) __builtin_prefetch(row + i);
  }

  // One vector's worth of columns whose elements run along k in memory: squares of kLane x kLane are turned in
  // registers.
  template <class S>
  static void pack_turned(T* to, const S* from, std::int64_t stride, std::int64_t count, std::int64_t depth) {
    std::int64_t k = 0;
    if (count >= kLane)
      for (; k + kLane <= depth; k += kLane) {
        Vec<T> square[kLane];
#pragma GCC unroll 16
        for (int i = 0; i < kLane; ++i) square[i] = load(from + i * stride + k);
        detail::transpose_square<T>(square);
#pragma GCC unroll 16
        for (int i = 0; i < kLane; ++i) store(to + (k + i) * kColumns, square[i]);
      }
    for (; k < depth; k += kLane) {  // what does not fill a square
      const std::int64_t some = std::min<std::int64_t>(kLane, depth - k);
      Vec<T> square[kLane] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(kLane, count); ++i)
        square[i] = load_some(from + i * stride + k, some);
      detail::transpose_square<T>(square);
      for (std::int64_t i = 0; i < some; ++i) store(to + (k + i) * kColumns, square[i]);
    }
  }
};

}  // namespace lockstep::cpu
