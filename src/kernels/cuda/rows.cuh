// Rows of a 2- or 3-dim operand by number, and how a launch is split over rows and columns.
#pragma once
#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

// Row r of (N, C), or of (N, M, C) with r = n·M + m.
struct RowPlace {
  std::int64_t outer, inner;
};

// Found once for all operands of a shape. Divisions of 64 bits take as long as a short row does.
__device__ inline RowPlace place_of(std::int64_t row, std::int64_t inner) {
  if (inner == 1) return {row, 0};
  if (row >> 32 || inner >> 32) return {row / inner, row % inner};
  const unsigned r = static_cast<unsigned>(row), m = static_cast<unsigned>(inner);
  return {r / m, r % m};
}

// Of an operand that is none, false.
template <class S>
struct Rows {
  S* base;
  std::int64_t inner;
  std::int64_t outer_stride;
  std::int64_t inner_stride;

  __device__ S* operator[](RowPlace at) const { return base + at.outer * outer_stride + at.inner * inner_stride; }
  __device__ S* operator[](std::int64_t row) const { return (*this)[place_of(row, inner)]; }
  __device__ explicit operator bool() const { return base != nullptr; }
};

template <class S, class View>
Rows<S> rows_of(const View& t) {
  if (t.none()) return {nullptr, 1, 0, 0};
  const bool nested = t.dims() == 3;
  return {t.template data<std::remove_const_t<S>>(), nested ? t.dim(1) : 1, t.stride(0), nested ? t.stride(1) : 0};
}
template <class S>
Rows<S> rows(const Tensor& t) {
  return rows_of<S>(t);
}
template <class S>
Rows<const S> rows(const ConstTensor& t) {
  return rows_of<const S>(t);
}

// Threads of a block whose threads are side by side along a row: whole warps, no more than the row can use. A function
// of the width alone, so that a row's sums have one order.
inline int threads_for(std::int64_t columns) {
  return static_cast<int>(std::clamp<std::int64_t>(round_up(columns, 32), 32, kThreads));
}

// Where a whole row is needed at once: a block for each row; kernels stride over rows beyond the grid.
inline unsigned row_blocks(std::int64_t rows) { return blocks_for(rows, 1); }

}  // namespace lockstep::cuda
