// An index outside its table cannot throw here: forward gives a row of NaN (of a part, zeros), backward leaves the
// contribution out, and neither touches memory beyond the table.
//
// Backward: places are sorted by their index, equal indices in the order of places, so that each row of the table has
// its contributions in one run. A run is summed in blocks of places, in order; the sums of a run of several blocks are
// then summed by eight warps, an eighth of the blocks each, in order. So long runs (a common byte, in text of bytes)
// have many threads at work, and the order of a row's sum is a function of how many contributions it has.
#include "kernels/embedding.h"

#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  Rows<S> y;  // (B·T, C)
  Rows<const S> table, position_table;
  const std::int32_t *tokens, *positions;  // positions and their table may be none
  std::int64_t count, length, width, table_rows, position_rows, first;
  bool part;
};

template <class S, bool Whole>
__global__ void forward(Forward<S> a) {
  using T = Compute<S>;
  each_pack<S>(a.count, a.width, [&](std::int64_t row, std::int64_t c, int n) {
    const std::int64_t token = a.tokens[row] - a.first,
                       position = a.positions ? a.positions[place_of(row, a.length).inner] : 0;
    const bool held = token >= 0 && token < a.table_rows;
    const bool known = (held || a.part) && (!a.positions || (position >= 0 && position < a.position_rows));
    T v[kPack<S>], other[kPack<S>];
    for (int i = 0; i < kPack<S>; ++i) v[i] = known ? T(0) : std::numeric_limits<T>::quiet_NaN();
    if (known && held) read<Whole>(v, a.table[token] + c, n);
    if (known && a.positions) {
      read<Whole>(other, a.position_table[position] + c, n);
      for (int i = 0; i < kPack<S>; ++i) v[i] += other[i];
    }
    write<Whole>(a.y[row] + c, v, n);
  });
}

// Keys to sort: an index's row, or for one outside the table the number of its rows, which no row has.
__global__ void make_keys(unsigned* keys, int* places, const std::int32_t* indices, int count, std::int64_t table_rows,
                          std::int64_t first) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const std::int64_t row = indices[i] - first;
  keys[i] = static_cast<unsigned>(row >= 0 && row < table_rows ? row : table_rows);
  places[i] = i;
}

// For every sorted place, the run it is in: [x, y).
__global__ void find_runs(int2* runs, const unsigned* keys, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const unsigned key = keys[i];
  int below = -1, first = i;  // keys[below] is before the run, keys[first] of it
  while (first - below > 1) {
    const int middle = below + (first - below) / 2;
    (keys[middle] == key ? first : below) = middle;
  }
  int last = i, end = count;  // keys[last] is in the run, keys[end] after it
  while (end - last > 1) {
    const int middle = last + (end - last) / 2;
    (keys[middle] == key ? last : end) = middle;
  }
  runs[i] = {first, end};
}

template <class S, class G>
struct Backward {
  Rows<G> dtable;
  const S* dy;
  const int* places;     // sorted
  const unsigned* keys;  // of them
  const int2* runs;
  Compute<S>* partial;  // (slots, width)
  std::int64_t count, batches, width, table_rows;
  int block;  // places of a block of a run
  bool accumulate;
};

// Where the sum of the block that begins at a sorted place is kept. Of the blocks that begin within `block` places in a
// row, one at most is the first of a run of several, and one at most is not the first.
__device__ std::int64_t slot_of(int place, int block, bool first) { return 2 * (place / block) + (first ? 1 : 0); }

// A block of threads for each sorted place and piece of columns; those at which a block of a run begins sum it. A run
// of one block goes to the table, the others' sums aside.
template <class S, class G, bool Whole>
__global__ void __launch_bounds__(kThreads) sum_runs(Backward<S, G> a) {
  using T = Compute<S>;
  constexpr int N = kPack<S>, kAhead = 4;
  const int place = static_cast<int>(blockIdx.x);
  const int2 run = a.runs[place];
  const unsigned index = a.keys[place];
  const std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (index >= a.table_rows || (place - run.x) % a.block != 0 || c >= a.width) return;
  const int n = static_cast<int>(a.width - c < N ? a.width - c : N);
  const int end = min(run.y, place + a.block);
  T total[N] = {};
  G* out = a.dtable[index] + c;
  const bool alone = run.y - run.x <= a.block;
  if (alone && a.accumulate) read<Whole>(total, out, n);
  for (std::int64_t batch = 0; batch < a.batches; ++batch) {
    const S* in = a.dy + batch * a.count * a.width + c;
    int i = place;
    for (; i + kAhead <= end; i += kAhead) {
      T v[kAhead][N];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) read<Whole>(v[k], in + a.places[i + k] * a.width, n);
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        for (int j = 0; j < N; ++j) total[j] += v[k][j];
    }
    for (; i < end; ++i) {
      T v[N];
      read<Whole>(v, in + a.places[i] * a.width, n);
      for (int j = 0; j < N; ++j) total[j] += v[j];
    }
  }
  if (alone)
    write<Whole>(out, total, n);
  else
    write<Whole>(a.partial + slot_of(place, a.block, place == run.x) * a.width + c, total, n);
}

// The runs of several blocks: one at most begins within `block` places in a row. Lanes over columns, warps over blocks.
constexpr int kJoiningWarps = 8;
template <class S, class G>
__global__ void __launch_bounds__(32 * kJoiningWarps) join_blocks(Backward<S, G> a) {
  using T = Compute<S>;
  __shared__ int found;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  if (thread == 0) found = -1;
  __syncthreads();
  const std::int64_t from = std::int64_t{blockIdx.y} * a.block;
  for (int i = thread; i < a.block && from + i < a.count; i += 32 * kJoiningWarps) {
    const int2 run = a.runs[from + i];
    if (run.x == from + i && run.y - run.x > a.block && a.keys[from + i] < a.table_rows) found = run.x;
  }
  __syncthreads();
  const int first = found;
  if (first < 0) return;
  const int blocks = (a.runs[first].y - first + a.block - 1) / a.block;
  const int each = (blocks + kJoiningWarps - 1) / kJoiningWarps, end = min(blocks, (warp + 1) * each);
  const std::int64_t c = std::int64_t{blockIdx.x} * 32 + lane;
  T total = 0;
  if (c < a.width) {
#pragma unroll 8
    for (int i = warp * each; i < end; ++i)
      total += a.partial[slot_of(first + i * a.block, a.block, i == 0) * a.width + c];
  }
  __shared__ T shared[kJoiningWarps][32];
  shared[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || c >= a.width) return;
  G* out = a.dtable[a.keys[first]] + c;
  total = a.accumulate ? static_cast<T>(widen(*out)) : T(0);
  for (int w = 0; w < kJoiningWarps; ++w) total += shared[w][lane];
  *out = narrow<G>(total);
}

// The scratch, cut into arrays one after the other.
class Cut {
 public:
  explicit Cut(void* scratch) : at_(static_cast<std::byte*>(scratch)), begin_(at_) {}
  template <class T>
  T* take(std::int64_t count) {
    T* here = reinterpret_cast<T*>(at_);
    at_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 256);
    return here;
  }
  std::int64_t left() const { return kScratchBytes - (at_ - begin_); }

 private:
  std::byte *at_, *begin_;
};

// How many places a block of a run has: 64, and more only where the scratch would not hold the sums.
int block_for(std::int64_t count, std::int64_t row_bytes, std::int64_t room) {
  std::int64_t block = 64;
  while (block < count && 2 * ceil_div(count, block) * row_bytes > room) block *= 2;
  return static_cast<int>(block);
}

// Sorts the places by index; false where the scratch has no room.
bool sort_places(int*& places, unsigned*& keys, Cut& cut, const std::int32_t* indices, int count,
                 std::int64_t table_rows, std::int64_t first, cudaStream_t queue) {
  places = cut.take<int>(count);
  keys = cut.take<unsigned>(count);
  Cut rest = cut;  // needed only until the sort is done
  int* unsorted = rest.take<int>(count);
  unsigned* unsorted_keys = rest.take<unsigned>(count);
  if (rest.left() < 0) return false;
  make_keys<<<blocks_for(count), kThreads, 0, queue>>>(unsorted_keys, unsorted, indices, count, table_rows, first);
  check_launch("embedding_backward");
  int bits = 1;
  while (table_rows >> bits) ++bits;
  std::size_t bytes = 0;
  check_cuda(
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, unsorted_keys, keys, unsorted, places, count, 0, bits, queue),
      "embedding_backward");
  void* temporary = rest.take<std::byte>(static_cast<std::int64_t>(bytes));
  if (rest.left() < 0) return false;
  check_cuda(
      cub::DeviceRadixSort::SortPairs(temporary, bytes, unsorted_keys, keys, unsorted, places, count, 0, bits, queue),
      "embedding_backward");
  return true;
}

template <class S, class G>
void sum_all(Backward<S, G> a, Cut cut, cudaStream_t queue) {
  a.block = block_for(a.count, a.width * static_cast<std::int64_t>(sizeof(Compute<S>)), cut.left());
  a.partial = cut.take<Compute<S>>(2 * ceil_div(a.count, a.block) * a.width);
  const bool whole = in_packs(a.width, a.dtable) && a.width % kPack<S> == 0 && aligned(a.dy);
  const PackGrid grid = pack_grid(1, a.width, kPack<S>);
  const dim3 blocks(static_cast<unsigned>(a.count), grid.blocks.x);
  const auto kernel = whole ? sum_runs<S, G, true> : sum_runs<S, G, false>;
  kernel<<<blocks, grid.threads, 0, queue>>>(a);
  check_launch("embedding_backward");
  const dim3 joining(static_cast<unsigned>(ceil_div(a.width, 32)), static_cast<unsigned>(ceil_div(a.count, a.block)));
  join_blocks<<<joining, 32 * kJoiningWarps, 0, queue>>>(a);
  check_launch("embedding_backward");
}

}  // namespace

void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t width = a.y.dim(2);
    const Forward<S> args{.y = {a.y.data<S>(), 1, width, 0},
                          .table = rows<S>(a.table),
                          .position_table = rows<S>(a.position_table),
                          .tokens = a.tokens.data<std::int32_t>(),
                          .positions = a.positions ? a.positions.data<std::int32_t>() : nullptr,
                          .count = a.tokens.elements(),
                          .length = a.positions ? a.positions.elements() : 1,  // all, or one sample's
                          .width = width,
                          .table_rows = a.table.dim(0),
                          .position_rows = a.positions ? a.position_table.dim(0) : 0,
                          .first = a.first,
                          .part = a.part};
    const auto kernel = in_packs(width, args.y, args.table, args.position_table) ? forward<S, true> : forward<S, false>;
    const auto [blocks, threads] = pack_grid(args.count, width, kPack<S>);
    kernel<<<blocks, threads, 0, native(stream)>>>(args);
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
  Cut cut(Stream::of(stream).scratch());
  int* places = nullptr;
  unsigned* keys = nullptr;
  const bool sorted = count < 1 << 30 && sort_places(places, keys, cut, a.indices.data<std::int32_t>(),
                                                     static_cast<int>(count), a.dtable.dim(0), a.first, queue);
  int2* runs = cut.take<int2>(count);
  LOCKSTEP_CHECK(sorted && cut.left() > 0, "{}: {} indices are more than the scratch holds", op, count);
  find_runs<<<blocks_for(count), kThreads, 0, queue>>>(runs, keys, static_cast<int>(count));
  check_launch(op);
  with_float_and_result(a.dy.dtype(), a.dtable.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    sum_all<S, G>({.dtable = rows<G>(a.dtable),
                   .dy = a.dy.data<S>(),
                   .places = places,
                   .keys = keys,
                   .runs = runs,
                   .partial = nullptr,
                   .count = count,
                   .batches = tokens / count,
                   .width = width,
                   .table_rows = a.dtable.dim(0),
                   .block = 0,
                   .accumulate = a.accumulate},
                  cut, queue);
  });
}

}  // namespace lockstep::cuda
