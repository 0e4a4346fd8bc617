// A block for each row, which walks it in packs: once for its statistics, once for its gradients.
//
// The order of a row's sum is a function of `valid` and the type, whatever the operands' strides: a thread takes every
// n-th pack in ascending order, then lanes (a butterfly) and warps are added in ascending order. Ranks' statistics are
// combined by every thread for itself, in rank order.
#include "kernels/split_cross_entropy.h"

#include "kernels/cuda/cross_entropy_walked.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kAhead = 4;  // packs that a thread reads before it uses the first

template <class S>
struct Columns {
  Rows<const S> logits;
  const std::int32_t* targets;
  std::int64_t count, first;
  int valid, width;

  __device__ const S* logits_of(std::int64_t row) const { return logits[RowPlace{row, 0}]; }
  // The column of a target, none (-1) where another rank has it.
  __device__ int column_of(std::int32_t target) const {
    const std::int64_t column = target - first;
    return column >= 0 && column < valid ? static_cast<int>(column) : -1;
  }
};

// body(this thread's packs of a tile, the column of the first; each of the others is blockDim.x packs further), for all
// tiles of `columns` columns in ascending order. After the valid ones comes -inf.
template <bool Whole, class S, class Body>
__device__ void each_tile_of_packs(const S* in, int valid, int columns, Body&& body) {
  using T = Compute<S>;
  constexpr int N = kPack<S>;
  const int step = static_cast<int>(blockDim.x) * N;
  for (int begin = 0; begin < columns; begin += kAhead * step) {
    const int c = begin + static_cast<int>(threadIdx.x) * N;
    T v[kAhead][N];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int left = valid - (c + k * step);
      if (left > 0) read<Whole>(v[k], in + c + k * step, left);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i >= left) v[k][i] = -std::numeric_limits<T>::infinity();
    }
    body(v, c);
  }
}

template <class S, bool Whole>
__global__ void __launch_bounds__(kWalkingThreads) statistics_kernel(Columns<S> a, Compute<S>* statistics) {
  using T = Compute<S>;
  constexpr int N = kPack<S>;
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const S* in = a.logits_of(row);
    Exponentials<T> seen;
    each_tile_of_packs<Whole>(in, a.valid, a.valid, [&](const T(&v)[kAhead][N], int) {
#pragma unroll
      for (int k = 0; k < kAhead; ++k) seen.add(v[k]);
    });
    const T top = block_max(seen.high), total = block_sum(seen.relative_to(top));
    if (threadIdx.x > 0) continue;
    const std::int32_t target = a.targets[row];
    const int column = a.column_of(target);
    T* out = statistics + row * kLossStatistics;
    out[0] = top;
    out[1] = total;
    out[2] = target < 0 ? without_target<T>(target) : column >= 0 ? static_cast<T>(widen(in[column])) : T(0);
  }
}

// What all ranks' columns give together, in rank order. A rank without any has 0·exp(-inf - top), which adds nothing;
// where no rank has any, that is NaN, and so is the row.
template <class T>
struct Combined {
  T top = -std::numeric_limits<T>::infinity();
  T total = 0;
  T hit = 0;

  __device__ Combined(const T* statistics, std::int64_t ranks, std::int64_t stride) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const T high = statistics[rank * stride];
      top = (high > top || high != high) ? high : top;
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const T* one = statistics + rank * stride;
      total += one[1] * std::exp(one[0] - top);
      hit += one[2];
    }
  }
};

template <class S, class D>
struct Loss {
  Columns<S> in;
  Rows<D> dlogits;  // may be none
  const Compute<S>* statistics;
  const Compute<S>* scale;
  Compute<S>* losses;
  std::int32_t* likeliest;  // may be none, or the targets
  std::int64_t ranks;
};

// dlogits may overlay logits. Of the same type, a thread writes where it alone has read. Of 16 bits over 32, a pack's
// gradients are where the pack half as far was: the block walks forward in tiles, reads one whole before it writes its
// gradients, and so never writes over what is still to be read.
template <class S, class D, bool Whole>
__global__ void __launch_bounds__(kWalkingThreads) loss_kernel(Loss<S, D> a) {
  using T = Compute<S>;
  constexpr int N = kPack<S>;
  const T scale = *a.scale;
  const int step = static_cast<int>(blockDim.x) * N;
  for (std::int64_t row = blockIdx.x; row < a.in.count; row += gridDim.x) {
    const std::int32_t target = a.in.targets[row];
    const Combined<T> all(a.statistics + row * kLossStatistics, a.ranks, a.in.count * kLossStatistics);
    if (threadIdx.x == 0)
      a.losses[row] = target < 0 ? without_target<T>(target) : std::log(all.total) + (all.top - all.hit);
    if (a.likeliest) {
      __syncthreads();  // all threads have read the target
      if (threadIdx.x == 0 && target >= 0) a.likeliest[row] = all.hit >= all.top;
    }
    if (!a.dlogits) continue;
    const S* in = a.in.logits_of(row);
    D* out = a.dlogits[RowPlace{row, 0}];
    const int column = a.in.column_of(target);
    const T factor = scale / all.total, hit = column >= 0 ? static_cast<T>(widen(in[column])) : T(0);
    // Of the target, (p - 1)·scale rounds once in a narrow type.
    const T of_target = (std::exp(hit - all.top) / all.total - T(1)) * scale;
    each_tile_of_packs<Whole>(in, a.in.valid, a.in.width, [&](const T(&v)[kAhead][N], int c) {
      __syncthreads();  // the tile, and the target's logit, have been read
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int at = c + k * step, left = a.in.width - at;
        if (left <= 0) continue;
        T gradient[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          gradient[i] = target < 0         ? without_target<T>(target)
                        : at + i == column ? of_target
                                           : std::exp(v[k][i] - all.top) * factor;
          if (at + i >= a.in.valid) gradient[i] = T(0);
        }
        write<Whole>(out + at, gradient, left);
      }
    });
  }
}

template <class S, class View>
Columns<S> columns_of(const View& a) {
  return {.logits = rows<S>(a.logits),
          .targets = a.targets.template data<std::int32_t>(),
          .count = a.logits.dim(0),
          .first = a.first,
          .valid = static_cast<int>(a.valid),
          .width = static_cast<int>(a.logits.dim(1))};
}

// Whole packs can be read where rows begin at them and are made of them: the last may reach into the padding.
template <class S>
bool in_packs(const Columns<S>& a) {
  return a.width % kPack<S> == 0 && aligned_rows<16>(a.logits);
}

template <class S>
unsigned threads_of(std::int64_t columns) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(round_up(ceil_div(columns, kPack<S>), 32), 32, kWalkingThreads));
}

template <class S, class D>
void launch(const SplitCrossEntropyArgs& a, cudaStream_t stream) {
  using T = Compute<S>;
  const Loss<S, D> args{.in = columns_of<S>(a),
                        .dlogits = rows<D>(a.dlogits),
                        .statistics = a.statistics.data<T>(),
                        .scale = a.scale.data<T>(),
                        .losses = a.losses.data<T>(),
                        .likeliest = a.likeliest ? a.likeliest.data<std::int32_t>() : nullptr,
                        .ranks = a.statistics.dim(0)};
  const bool whole = in_packs(args.in) && aligned_rows<kPack<S> * sizeof(D)>(args.dlogits);
  const auto kernel = whole ? loss_kernel<S, D, true> : loss_kernel<S, D, false>;
  kernel<<<row_blocks(args.in.count), threads_of<S>(a.dlogits ? args.in.width : 1), 0, stream>>>(args);
  check_launch("split_cross_entropy");
}

}  // namespace

void split_cross_entropy_statistics(const SplitCrossEntropyStatisticsArgs& a, lockstep::Stream& stream) {
  LOCKSTEP_CHECK(a.logits.dim(1) < 1 << 30, "split_cross_entropy_statistics: more columns than int32 can count");
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const Columns<S> columns = columns_of<S>(a);
    const auto kernel = in_packs(columns) ? statistics_kernel<S, true> : statistics_kernel<S, false>;
    kernel<<<row_blocks(columns.count), threads_of<S>(columns.valid), 0, native(stream)>>>(
        columns, a.statistics.data<Compute<S>>());
  });
  check_launch("split_cross_entropy_statistics");
}

void split_cross_entropy(const SplitCrossEntropyArgs& a, lockstep::Stream& stream) {
  const cudaStream_t queue = native(stream);
  LOCKSTEP_CHECK(a.logits.dim(1) < 1 << 30, "split_cross_entropy: more columns than int32 can count");
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const DType d = a.dlogits ? a.dlogits.dtype() : a.logits.dtype();
    if constexpr (std::is_same_v<S, float>) {
      if (d == DType::bf16) return launch<float, bf16>(a, queue);
      if (d == DType::f16) return launch<float, f16>(a, queue);
    }
    launch<S, S>(a, queue);
  });
}

}  // namespace lockstep::cuda
