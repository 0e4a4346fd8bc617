// Sums over rows, column by column: what the gradients of norm weights and biases are.
//
// A thread sums one column over 64 rows in ascending order; the partial sums, kept in the stream's scratch, are rows of
// a smaller sum of the same kind, until one is left. The tree is a function of the shape alone.
#pragma once
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

inline constexpr std::int64_t kSummedRows = 64;

// out[block, c] (+)= Σ term(row, c) over the rows of the block (blockIdx.x); columns along y.
template <class T, class Out, class Term>
__global__ void sum_row_blocks(Out* out, std::int64_t rows, std::int64_t columns, std::int64_t rows_each,
                               bool accumulate, Term term) {
  const std::int64_t c = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  const std::int64_t begin = blockIdx.x * rows_each, end = begin + rows_each < rows ? begin + rows_each : rows;
  T total = 0;
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) total += term(row, c);
  Out* to = out + blockIdx.x * columns + c;
  *to = narrow<Out>(accumulate ? widen(*to) + total : total);
}

template <class T>
struct PartialSums {
  const T* partial;
  std::int64_t columns;
  __device__ T operator()(std::int64_t row, std::int64_t c) const { return partial[row * columns + c]; }
};

template <class T, class Out, class Term>
void launch_row_blocks(cudaStream_t stream, Out* out, std::int64_t rows, std::int64_t columns, std::int64_t rows_each,
                       bool accumulate, Term term) {
  const int threads = threads_for(columns);
  const dim3 blocks(static_cast<unsigned>(std::max<std::int64_t>(1, ceil_div(rows, rows_each))),
                    static_cast<unsigned>(ceil_div(columns, threads)));
  sum_row_blocks<T><<<blocks, threads, 0, stream>>>(out, rows, columns, rows_each, accumulate, term);
}

// result[c] (+)= Σ_row term(row, c), in T; Term is a functor for the device. No rows sum to zero.
template <class T, class G, class Term>
void column_sums(const char* op, lockstep::Stream& stream, G* result, std::int64_t rows, std::int64_t columns,
                 bool accumulate, Term term) {
  if (columns == 0) return;
  const cudaStream_t queue = native(stream);
  if (rows <= kSummedRows) {
    launch_row_blocks<T>(queue, result, rows, columns, kSummedRows, accumulate, term);
    return check_launch(op);
  }
  // All levels together are less than twice the first; its blocks grow only where the scratch would not hold that.
  const std::int64_t room = kScratchBytes / (columns * static_cast<std::int64_t>(sizeof(T)));
  LOCKSTEP_CHECK(room >= 2, "{}: {} columns are more than the scratch holds", op, columns);
  std::int64_t rows_each = kSummedRows;
  while (2 * ceil_div(rows, rows_each) > room && rows_each < rows) rows_each *= 2;
  T* partial = static_cast<T*>(Stream::of(stream).scratch());
  std::int64_t count = ceil_div(rows, rows_each);
  launch_row_blocks<T>(queue, partial, rows, columns, rows_each, false, term);
  while (count > kSummedRows) {
    T* next = partial + count * columns;
    launch_row_blocks<T>(queue, next, count, columns, kSummedRows, false, PartialSums<T>{partial, columns});
    partial = next;
    count = ceil_div(count, kSummedRows);
  }
  launch_row_blocks<T>(queue, result, count, columns, kSummedRows, accumulate, PartialSums<T>{partial, columns});
  check_launch(op);
}

}  // namespace lockstep::cuda
