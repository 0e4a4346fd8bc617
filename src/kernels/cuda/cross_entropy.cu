// A row is too long for one block's share of a fast memory when vocabularies are large, so a cluster of blocks shares
// it, each a slice that its L1 still holds when the gradients are made: a logit comes from memory once. The number of
// slices and threads is a function of V and the type alone, and so is the order of a row's sum: a thread takes every
// n-th unit of its slice in ascending order, then lanes (a butterfly), warps and slices are added in ascending order.
#include "kernels/cross_entropy.h"

#include <cooperative_groups.h>

#include <limits>

#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kMostThreads = 512, kMostSlices = 8;  // of a block; of a row: the largest cluster every GPU has
constexpr std::int64_t kSliceBytes = 64 << 10;      // two blocks' slices fit one L1

template <class S, class D>
struct Loss {
  Rows<D> dlogits;  // may be none
  Rows<const S> logits;
  const std::int32_t* targets;
  const Compute<S>* scale;
  Compute<S>* losses;
  std::int64_t count;
  int vocabulary;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOCKSTEP_CLUSTERS 1
#else
#define LOCKSTEP_CLUSTERS 0
#endif

// The sum of exp(logit - high) over what was seen, high the largest seen. Where nothing but -inf was, high is -inf and
// the sum zero. A NaN is no maximum, but the sum meets it.
template <class T>
struct Exponentials {
  T high = -std::numeric_limits<T>::infinity();
  T sum = 0;

  static __device__ T base(T high) { return high == -std::numeric_limits<T>::infinity() ? T(0) : high; }
  __device__ T relative_to(T top) const { return sum * std::exp(high - base(top)); }

  template <int N>
  __device__ void add(const T (&v)[N], int count) {
    T top = high;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) top = v[i] > top ? v[i] : top;
    if (top > high) {
      sum = relative_to(top);
      high = top;
    }
    const T from = base(high);
    T of_these = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) of_these += std::exp(v[i] - from);
    sum += of_these;
  }
};

// body(unit's values, first column, columns) for the units of [begin, end) that are this thread's; a few are read
// before the first is used.
template <bool Whole, int Unit, class S, class Body>
__device__ void each_unit(const S* in, int begin, int end, int vocabulary, Body&& body) {
  constexpr int kAhead = Unit == 1 ? 8 : Whole && sizeof(S) < 8 ? 4 : 2;
  const int step = static_cast<int>(blockDim.x);
  for (int unit = begin + static_cast<int>(threadIdx.x); unit < end; unit += kAhead * step) {
    Compute<S> v[kAhead][Unit];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int c = (unit + n * step) * Unit;
      if (unit + n * step < end) read<Whole>(v[n], in + c, vocabulary - c);
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int c = (unit + n * step) * Unit;
      if (unit + n * step < end) body(v[n], c, Whole || vocabulary - c > Unit ? Unit : vocabulary - c);
    }
  }
}

// dlogits may lie over logits: a thread reads what it overwrites, and all of the row's sum is done, and the target's
// logit read, before any writes.
//
// A target outside the vocabulary cannot throw here. Its row becomes NaN, loss and gradient, so that no update is made
// of it.
template <class S, class D, int Unit, bool Whole>
__global__ void __launch_bounds__(kMostThreads, sizeof(S) == 8 ? 1 : 2) loss(Loss<S, D> a, int slices) {
  using T = Compute<S>;
  const T scale = *a.scale;
  const int units = (a.vocabulary + Unit - 1) / Unit, each = (units + slices - 1) / slices;
  const int slice = static_cast<int>(blockIdx.x % slices), begin = min(units, slice * each);
  const int end = min(units, begin + each);
  for (std::int64_t row = blockIdx.x / slices; row < a.count; row += gridDim.x / slices) {
    const std::int32_t target = a.targets[row];
    const S* in = a.logits[row];
    D* out = a.dlogits ? a.dlogits[row] : nullptr;
    if (target < 0 || target >= a.vocabulary) {
      const T value = target == kIgnoredTarget ? T(0) : std::numeric_limits<T>::quiet_NaN();
      if (slice == 0 && threadIdx.x == 0) a.losses[row] = value;
      T all[Unit];
      for (int i = 0; i < Unit; ++i) all[i] = value;
      for (int unit = begin + static_cast<int>(threadIdx.x); out && unit < end; unit += static_cast<int>(blockDim.x))
        write<Whole>(out + std::int64_t{unit} * Unit, all, a.vocabulary - unit * Unit);
      continue;  // the whole cluster does
    }
    const T hit = widen(in[target]);
    Exponentials<T> seen;
    each_unit<Whole, Unit>(in, begin, end, a.vocabulary,
                           [&](const T(&v)[Unit], int, int count) { seen.add(v, count); });
    T top = block_max(seen.high), total = block_sum(seen.relative_to(top));
#if LOCKSTEP_CLUSTERS
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    if (slices > 1) {
      __shared__ T of_slice[2];  // its maximum and its sum
      if (threadIdx.x == 0) {
        of_slice[0] = top;
        of_slice[1] = total;
      }
      cluster.sync();
      for (int i = 0; i < slices; ++i) top = max(top, cluster.map_shared_rank(of_slice, i)[0]);
      total = 0;
      for (int i = 0; i < slices; ++i) {
        const T* other = cluster.map_shared_rank(of_slice, i);
        total += Exponentials<T>{other[0], other[1]}.relative_to(top);
      }
      cluster.barrier_arrive();
    }
#endif
    if (slice == 0 && threadIdx.x == 0) a.losses[row] = std::log(total) + (top - hit);
    if (out) {
      const T factor = scale / total;
      // Of the target, (p - 1)·scale rounds once in a narrow type.
      const T of_target = (std::exp(hit - top) / total - T(1)) * scale;
      each_unit<Whole, Unit>(in, begin, end, a.vocabulary, [&](const T(&v)[Unit], int c, int count) {
        T gradient[Unit];
        for (int i = 0; i < Unit; ++i) gradient[i] = c + i == target ? of_target : std::exp(v[i] - top) * factor;
        write<Whole>(out + c, gradient, count);
      });
    }
#if LOCKSTEP_CLUSTERS
    if (slices > 1) cluster.barrier_wait();  // a block's sum is there until all have read it
#endif
  }
}

template <class S, class D, int Unit, bool Whole>
void launch(const Loss<S, D>& args, cudaStream_t stream) {
  const auto kernel = loss<S, D, Unit, Whole>;
  const std::int64_t units = ceil_div(args.vocabulary, Unit);
  int slices = 1;
  while (slices < kMostSlices && ceil_div(args.vocabulary, slices) * static_cast<std::int64_t>(sizeof(S)) > kSliceBytes)
    slices *= 2;
  if (slices > 1) {  // code for older GPUs knows no clusters
    cudaFuncAttributes of{};
    check_cuda(cudaFuncGetAttributes(&of, kernel), "cross_entropy");
    if (of.binaryVersion < 90) slices = 1;
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(slices);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(row_blocks(args.count) * static_cast<unsigned>(slices));
  config.blockDim =
      dim3(static_cast<unsigned>(std::clamp<std::int64_t>(round_up(ceil_div(units, slices), 32), 32, kMostThreads)));
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = slices > 1 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args, slices), "cross_entropy");
}

template <class S, class D>
void launch(const CrossEntropyArgs& a, cudaStream_t stream) {
  using T = Compute<S>;
  const Loss<S, D> args{.dlogits = rows<D>(a.dlogits),
                        .logits = rows<S>(a.logits),
                        .targets = a.targets.data<std::int32_t>(),
                        .scale = a.scale.data<T>(),
                        .losses = a.losses.data<T>(),
                        .count = a.logits.dim(0),
                        .vocabulary = static_cast<int>(a.logits.dim(1))};
  // Units are packs of logits where the vocabulary is made of them; else single logits, side by side over the lanes.
  constexpr int kUnit = kPack<S>;
  if (args.vocabulary % kUnit != 0) return launch<S, D, 1, false>(args, stream);
  if (aligned_rows<16>(args.logits) && aligned_rows<kUnit * sizeof(D)>(args.dlogits))
    return launch<S, D, kUnit, true>(args, stream);
  launch<S, D, kUnit, false>(args, stream);
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a, lockstep::Stream& stream) {
  const cudaStream_t queue = native(stream);
  LOCKSTEP_CHECK(a.logits.dim(1) < 1 << 30, "cross_entropy: more words than int32 can count");
  with_float(a.logits.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const DType d = a.dlogits ? a.dlogits.dtype() : a.logits.dtype();
    if (d == a.logits.dtype()) return launch<S, S>(a, queue);
    if constexpr (std::is_same_v<S, float>) {
      if (d == DType::bf16) return launch<float, bf16>(a, queue);
      if (d == DType::f16) return launch<float, f16>(a, queue);
    }
    LOCKSTEP_CHECK(false, "cross_entropy: gradient {} of logits {}", name_of(d), name_of(a.logits.dtype()));
  });
}

}  // namespace lockstep::cuda
