// Sums over rows, column by column: what the gradients of norm weights and biases are.
//
// A block sums some rows of some columns: each of its groups of threads every group-th row in ascending order, a pack
// of columns a thread, then the groups in ascending order. The blocks' sums, kept in the stream's scratch, are summed
// the same way by a second launch. The tree is a function of the shape and the type alone.
//
// What is summed is a Term: its Stored type, kSums results for each column, how many rows a thread reads ahead
// (kInFlight), load<Whole>(row, first column, columns) of one row's pack, and add(total, loaded).
#pragma once
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

inline constexpr std::int64_t kSummingBlocks = 1056;  // eight for each unit of the largest GPUs, about
inline constexpr int kSummingGroups = 32;             // of the second launch: warps of a block

// A pack, or the first `count` elements of it with zeros behind.
template <bool Whole, class S>
__device__ inline Pack<S> load_some(const S* from, int count) {
  if constexpr (Whole) {
    return load_pack(from);
  } else {
    Compute<S> v[kPack<S>];
    read<false>(v, from, count);
    return narrow_pack<S>(v);
  }
}

// How a sum is cut: `lanes` threads (a power of two) side by side over columns, `rows_each` rows of a block.
struct SumCut {
  int lanes;
  std::int64_t chunks;  // of columns
  std::int64_t rows_each, blocks;
};
inline SumCut sum_cut(std::int64_t rows, std::int64_t columns, int pack) {
  SumCut cut{};
  for (cut.lanes = 1; cut.lanes < 32 && cut.lanes * pack < columns;) cut.lanes *= 2;
  cut.chunks = ceil_div(columns, cut.lanes * pack);
  const std::int64_t wanted = std::clamp<std::int64_t>(kSummingBlocks / cut.chunks, 1, 65535);
  cut.rows_each = std::max<std::int64_t>(ceil_div(rows, wanted), 4 * (kThreads / cut.lanes));
  cut.blocks = std::max<std::int64_t>(1, ceil_div(rows, cut.rows_each));
  return cut;
}

// partial[sum, block, column]; chunks of columns along x, blocks of rows along y.
template <bool Whole, class Term>
__global__ void __launch_bounds__(kThreads, Whole&& Term::kSums == 1 ? 4 : 2)
    sum_row_blocks(Compute<typename Term::Stored>* partial, std::int64_t rows, std::int64_t columns, SumCut cut,
                   Term term) {
  using T = Compute<typename Term::Stored>;
  constexpr int kColumns = kPack<typename Term::Stored>, kAhead = Term::kInFlight;
  const int lane = static_cast<int>(threadIdx.x) % cut.lanes, group = static_cast<int>(threadIdx.x) / cut.lanes;
  const int groups = kThreads / cut.lanes, width = cut.lanes * kColumns;
  const std::int64_t first = std::int64_t{blockIdx.x} * width, c = first + lane * kColumns;
  T total[Term::kSums][kColumns] = {};
  if (c < columns) {
    const int count = static_cast<int>(columns - c < kColumns ? columns - c : kColumns);
    const std::int64_t begin = blockIdx.y * cut.rows_each;
    const std::int64_t end = begin + cut.rows_each < rows ? begin + cut.rows_each : rows;
    std::int64_t row = begin + group;
    for (; row + (kAhead - 1) * groups < end; row += kAhead * groups) {
      typename Term::Loaded loaded[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) loaded[i] = term.template load<Whole>(row + i * groups, c, count);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) term.add(total, loaded[i]);
    }
    for (; row < end; row += groups) term.add(total, term.template load<Whole>(row, c, count));
  }
  __shared__ T shared[kThreads * kColumns];
  for (int n = 0; n < Term::kSums; ++n) {
    __syncthreads();
    for (int i = 0; i < kColumns; ++i) shared[group * width + lane * kColumns + i] = total[n][i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < width && first + i < columns; i += kThreads) {
      T sum = 0;
      for (int g = 0; g < groups; ++g) sum += shared[g * width + i];
      partial[(n * std::int64_t{gridDim.y} + blockIdx.y) * columns + first + i] = sum;
    }
  }
}

template <class G, int Sums>
struct SumResults {
  static_assert(Sums <= 2);
  G* of[Sums];
};

// result[sum][c] (+)= Σ partial[sum, block, c]; a warp's lanes over columns, its blocks every 32nd; sums along y.
template <class T, class G, int Sums>
__global__ void __launch_bounds__(32 * kSummingGroups)
    sum_partials(SumResults<G, Sums> results, const T* partial, std::int64_t blocks, std::int64_t columns,
                 bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t c = std::int64_t{blockIdx.x} * 32 + lane;
  const T* in = partial + blockIdx.y * blocks * columns + c;
  T total = 0;
  if (c < columns) {
#pragma unroll 8
    for (std::int64_t block = group; block < blocks; block += kSummingGroups) total += in[block * columns];
  }
  __shared__ T shared[kSummingGroups][32];
  shared[group][lane] = total;
  __syncthreads();
  if (group > 0 || c >= columns) return;
  total = 0;
  for (int g = 0; g < kSummingGroups; ++g) total += shared[g][lane];
  G* to = (blockIdx.y == 0 ? results.of[0] : results.of[Sums - 1]) + c;
  *to = narrow<G>(accumulate ? widen(*to) + total : total);
}

// result[sum][c] (+)= Σ_row of the term's values, in their compute type. No rows sum to zero. `whole`: the term's
// operands can be read in packs.
template <class G, class Term>
void column_sums(const char* op, lockstep::Stream& stream, const SumResults<G, Term::kSums>& results, std::int64_t rows,
                 std::int64_t columns, bool accumulate, const Term& term, bool whole) {
  using T = Compute<typename Term::Stored>;
  if (columns == 0) return;
  const SumCut cut = sum_cut(rows, columns, kPack<typename Term::Stored>);
  LOCKSTEP_CHECK(Term::kSums * cut.blocks * columns * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes,
                 "{}: {} columns are more than the scratch holds", op, columns);
  T* partial = static_cast<T*>(Stream::of(stream).scratch());
  const dim3 blocks(static_cast<unsigned>(cut.chunks), static_cast<unsigned>(cut.blocks));
  if (whole)
    sum_row_blocks<true><<<blocks, kThreads, 0, native(stream)>>>(partial, rows, columns, cut, term);
  else
    sum_row_blocks<false><<<blocks, kThreads, 0, native(stream)>>>(partial, rows, columns, cut, term);
  check_launch(op);
  const dim3 last(static_cast<unsigned>(ceil_div(columns, 32)), Term::kSums);
  sum_partials<T><<<last, 32 * kSummingGroups, 0, native(stream)>>>(results, static_cast<const T*>(partial), cut.blocks,
                                                                    columns, accumulate);
  check_launch(op);
}

}  // namespace lockstep::cuda
