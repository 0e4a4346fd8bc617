// Rows of a 2- or 3-dim operand by number, and how a launch is cut over rows and columns.
#pragma once
#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

// Row r of (N, C), or of (N, M, C) with r = n·M + m. Of an operand that is none, false.
template <class S>
struct Rows {
  S* base;
  std::int64_t inner;
  std::int64_t outer_stride;
  std::int64_t inner_stride;

  __device__ S* operator[](std::int64_t row) const {
    return inner == 1 ? base + row * outer_stride : base + row / inner * outer_stride + row % inner * inner_stride;
  }
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

// Threads of a block whose threads lie side by side along a row: whole warps, no more than the row can use. A function
// of the width alone, so that a row's sums have one order.
inline int threads_for(std::int64_t columns) {
  return static_cast<int>(std::clamp<std::int64_t>(round_up(columns, 32), 32, kThreads));
}

// Where a whole row is needed at once: a block for each row; kernels stride over rows beyond the grid.
inline unsigned row_blocks(std::int64_t rows) { return blocks_for(rows, 1); }

// Where elements are independent: rows along x, pieces of a row along y; kernels stride over the rest of both.
inline dim3 element_blocks(std::int64_t rows, std::int64_t columns) {
  constexpr int kEach = 4;  // elements of one thread
  const std::int64_t pieces = ceil_div(columns, threads_for(columns) * kEach);
  return {row_blocks(rows), static_cast<unsigned>(std::clamp<std::int64_t>(pieces, 1, 65535)), 1};
}

// In a kernel launched with element_blocks: body(row, column) for every element that is this thread's.
template <class Body>
__device__ void each_element(std::int64_t rows, std::int64_t columns, Body&& body) {
  const std::int64_t first = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.x;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (std::int64_t c = first; c < columns; c += step) body(row, c);
}

}  // namespace lockstep::cuda
