// An index outside its table cannot throw here: forward gives a row of NaN, backward leaves the contribution out, and
// neither touches memory beyond the table.
#include "kernels/embedding.h"

#include <limits>

#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  S* y;
  Rows<const S> table, position_table;
  const std::int32_t *tokens, *positions;  // positions and their table may be none
  std::int64_t count, length, width, table_rows, position_rows;
};

template <class S>
__global__ void forward(Forward<S> a) {
  using T = Compute<S>;
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    S* out = a.y + row * a.width;
    const std::int64_t token = a.tokens[row], position = a.positions ? a.positions[row % a.length] : 0;
    const bool known =
        token >= 0 && token < a.table_rows && (!a.positions || (position >= 0 && position < a.position_rows));
    const S* from = known ? a.table[token] : nullptr;
    const S* other = known && a.positions ? a.position_table[position] : nullptr;
    for (std::int64_t c = threadIdx.x; c < a.width; c += blockDim.x) {
      if (!known)
        out[c] = narrow<S>(std::numeric_limits<T>::quiet_NaN());
      else
        out[c] = other ? narrow<S>(widen(from[c]) + widen(other[c])) : from[c];
    }
  }
}

// Backward: places are sorted by their index, equal indices in the order of places, so that each row of the table has
// its contributions in one run, in the order in which they must be added.

// Each thread counts the places that come before its own: count² comparisons, but exact and in no order at all.
__global__ void sort_places(std::int32_t* sorted, std::int32_t* keys, const std::int32_t* indices, int count) {
  __shared__ std::int32_t tile[kThreads];
  const int lane = static_cast<int>(threadIdx.x), place = static_cast<int>(blockIdx.x) * kThreads + lane;
  const std::int32_t mine = place < count ? indices[place] : 0;
  int before = 0;
  for (int begin = 0; begin < count; begin += kThreads) {
    __syncthreads();
    if (begin + lane < count) tile[lane] = indices[begin + lane];
    __syncthreads();
    const int size = min(kThreads, count - begin);
#pragma unroll 8
    for (int i = 0; i < size; ++i) before += tile[i] < mine || (tile[i] == mine && begin + i < place);
  }
  if (place >= count) return;
  sorted[before] = place;
  keys[before] = mine;
}

template <class S>
struct Backward {
  Rows<Compute<S>> dtable;
  const S* dy;
  const std::int32_t *sorted, *keys;
  std::int64_t count, batches, width, table_rows;
  bool accumulate;
};

// A block for each sorted place and piece of columns; those that stand at a run's start sum the run.
template <class S>
__global__ void sum_runs(Backward<S> a) {
  using T = Compute<S>;
  const std::int64_t c = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x, first = blockIdx.x;
  const std::int32_t index = a.keys[first];
  if (first > 0 && a.keys[first - 1] == index) return;
  if (index < 0 || index >= a.table_rows || c >= a.width) return;
  std::int64_t last = first, high = a.count;  // bisection: keys[last] is of the run, keys[high] is not
  while (high - last > 1) {
    const std::int64_t middle = last + (high - last) / 2;
    (a.keys[middle] == index ? last : high) = middle;
  }
  T* out = a.dtable[index] + c;
  T total = a.accumulate ? *out : T(0);
  for (std::int64_t batch = 0; batch < a.batches; ++batch) {
    const S* in = a.dy + batch * a.count * a.width + c;
#pragma unroll 4
    for (std::int64_t i = first; i < high; ++i) total += widen(in[a.sorted[i] * a.width]);
  }
  *out = total;
}

}  // namespace

void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Forward<S> args{.y = a.y.data<S>(),
                          .table = rows<S>(a.table),
                          .position_table = rows<S>(a.position_table),
                          .tokens = a.tokens.data<std::int32_t>(),
                          .positions = a.positions ? a.positions.data<std::int32_t>() : nullptr,
                          .count = a.tokens.elements(),
                          .length = a.y.dim(1),
                          .width = a.y.dim(2),
                          .table_rows = a.table.dim(0),
                          .position_rows = a.positions ? a.position_table.dim(0) : 0};
    forward<S><<<row_blocks(args.count), threads_for(args.width), 0, native(stream)>>>(args);
  });
  check_launch("embedding_forward");
}

void embedding_backward(const EmbeddingBackwardArgs& a, lockstep::Stream& stream) {
  const char* op = "embedding_backward";
  const std::int64_t count = a.indices.elements(), tokens = a.dy.dim(0) * a.dy.dim(1), width = a.dy.dim(2);
  const cudaStream_t queue = native(stream);
  if (!a.accumulate && a.dtable.elements() > 0) {
    const std::int64_t size = size_of(a.dtable.dtype());
    cudaMemset2DAsync(a.dtable.raw(), a.dtable.stride(0) * size, 0, width * size, a.dtable.dim(0), queue);
    check_launch(op);
  }
  if (tokens == 0 || width == 0) return;
  LOCKSTEP_CHECK(count * 2 * static_cast<std::int64_t>(sizeof(std::int32_t)) <= kScratchBytes,
                 "{}: {} indices are more than the scratch holds", op, count);
  std::int32_t* sorted = static_cast<std::int32_t*>(Stream::of(stream).scratch());
  std::int32_t* keys = sorted + count;
  sort_places<<<blocks_for(count), kThreads, 0, queue>>>(sorted, keys, a.indices.data<std::int32_t>(),
                                                         static_cast<int>(count));
  check_launch(op);
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Backward<S> args{.dtable = rows<Compute<S>>(a.dtable),
                           .dy = a.dy.data<S>(),
                           .sorted = sorted,
                           .keys = keys,
                           .count = count,
                           .batches = tokens / count,
                           .width = width,
                           .table_rows = a.dtable.dim(0),
                           .accumulate = a.accumulate};
    const int threads = threads_for(width);
    const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>(ceil_div(width, threads)));
    sum_runs<S><<<blocks, threads, 0, queue>>>(args);
  });
  check_launch(op);
}

}  // namespace lockstep::cuda
