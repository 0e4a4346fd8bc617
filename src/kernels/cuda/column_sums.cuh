// Sums over rows, column by column: the gradients of norm weights and biases.
//
// A block sums some rows of some columns: each of its groups of threads takes every group-th row in ascending order, a
// pack of columns per thread, then the groups are added in ascending order. The blocks' sums, kept in the stream's
// scratch, are summed the same way by a second launch. The tree is a function of the shape, the type and the term
// alone.
//
// A step calls these for a few tens of microseconds each, so whatever is spent beside reading matters. There are as
// many blocks as run at once, all but the last of one length and of whole rounds of loads in flight: none waits for a
// place, and they end together. The second launch is made ready while the first runs, and waits on the GPU for its sums
// (Hopper and later).
//
// What is summed is a Term: its Stored type, kSums results for each column, how many rows a thread reads ahead
// (kInFlight), load<Whole>(row, first column, columns) of one row's pack, and add(total, loaded).
#pragma once
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

// Blocks that run at once: three a unit have the registers that one sum needs, two those for two sums, and both have
// enough on its way; units as the largest GPUs have them, about.
template <class Term>
inline constexpr int kSummingBlocksEach = Term::kSums == 1 ? 3 : 2;
inline constexpr int kUnits = 132;
inline constexpr int kSummingGroups = 32;  // of the second launch: warps of a block

// How a sum is split: `lanes` threads (a power of two) side by side over columns, `rows_each` rows of a block.
struct SumCut {
  int lanes;
  std::int64_t column_blocks;
  std::int64_t rows_each, blocks;
};
template <class Term>
SumCut sum_cut(std::int64_t rows, std::int64_t columns) {
  constexpr int kColumns = kPack<typename Term::Stored>;
  SumCut cut{};
  for (cut.lanes = 1; cut.lanes < 32 && cut.lanes * kColumns < columns;) cut.lanes *= 2;
  cut.column_blocks = ceil_div(columns, cut.lanes * kColumns);
  const std::int64_t wanted = std::max<std::int64_t>(1, kUnits * kSummingBlocksEach<Term> / cut.column_blocks);
  const std::int64_t together = kThreads / cut.lanes * Term::kInFlight;
  cut.rows_each = round_up(std::max<std::int64_t>(1, ceil_div(rows, wanted)), together);
  cut.blocks = std::max<std::int64_t>(1, ceil_div(rows, cut.rows_each));
  return cut;
}

// Of two launches, the second's blocks may take their places as soon as all of the first's have said so; what the first
// wrote is there after the wait. Before Hopper launches follow each other whole.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__device__ inline void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
template <class... Parameters, class... Arguments>
void launch_behind(const char* op, cudaStream_t stream, dim3 blocks, int threads, void (*kernel)(Parameters...),
                   const Arguments&... arguments) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = major >= 9 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), op);
}

// partial[sum, block, column]; blocks of columns along x, blocks of rows along y.
template <bool Whole, class Term>
__global__ void __launch_bounds__(kThreads, Whole ? kSummingBlocksEach<Term> : 2)
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
#pragma unroll 1
    for (; row < end; row += groups) term.add(total, term.template load<Whole>(row, c, count));  // of the last block
  }
  let_next_launch_begin();
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
  wait_for_launch_before();
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
  const SumCut cut = sum_cut<Term>(rows, columns);
  LOCKSTEP_CHECK(Term::kSums * cut.blocks * columns * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes,
                 "{}: {} columns are more than the scratch holds", op, columns);
  T* partial = static_cast<T*>(Stream::of(stream).scratch());
  const dim3 blocks(static_cast<unsigned>(cut.column_blocks), static_cast<unsigned>(cut.blocks));
  if (whole)
    sum_row_blocks<true><<<blocks, kThreads, 0, native(stream)>>>(partial, rows, columns, cut, term);
  else
    sum_row_blocks<false><<<blocks, kThreads, 0, native(stream)>>>(partial, rows, columns, cut, term);
  check_launch(op);
  const dim3 last(static_cast<unsigned>(ceil_div(columns, 32)), Term::kSums);
  launch_behind(op, native(stream), last, 32 * kSummingGroups, sum_partials<T, G, Term::kSums>, results,
                static_cast<const T*>(partial), cut.blocks, columns, accumulate);
}

}  // namespace lockstep::cuda
