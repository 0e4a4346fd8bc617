// A row that a cluster of blocks holds in registers: every logit is read once, every exponential computed once.
//
// Blocks of a cluster share a row, each a slice. While they work on one row, the copy engine brings the next to shared
// memory, so memory does not wait for the exponentials or for the two meetings of the cluster: over the row's maximum,
// then over the sum of exp(logit - maximum). Those exponentials, times scale over sum, are the gradients.
//
// How a row is split is a function of V and the type alone, and so is the order of its sum: a thread takes every n-th
// unit of its slice in ascending order, lanes are added in a butterfly, and the warps of all slices in one more: lane l
// takes every 32nd from the l-th on.
//
// dlogits may overlay logits, of the same type or 16-bit over 32: nothing of a row is written before all blocks have
// read it, since none knows the sum before.
#pragma once
#include <cooperative_groups.h>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cross_entropy_rows.cuh"

namespace lockstep::cuda {

inline constexpr int kHeldLogits = 32;  // of a thread, in as many registers of the 64 it has
inline constexpr int kMostSlices = 8;   // the largest cluster that every GPU with clusters has

// Blocks of 512 threads, two to a processor, so that one computes while the other meets; of 1024 where that is not
// enough, and of 128, eight to a processor, where it is enough. Slices is 0 where a row does not fit.
struct RowCut {
  int threads;
  int slices;
};
inline RowCut cut_of(std::int64_t units, int unit) {
  for (const RowCut most : {RowCut{128, 1}, {512, kMostSlices}, {1024, kMostSlices}})
    for (int slices = 1; slices <= most.slices; slices *= 2)
      if (ceil_div(units, slices) * unit <= std::int64_t{most.threads} * kHeldLogits) return {most.threads, slices};
  return {0, 0};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Relative to the largest logit. For 16-bit gradients the hardware's approximation will do. It is off by no more than
// (4 + 2|x|)·2^-24 of its value, so the logarithm of a sum by the mean of that over the softmax, 4 + 2·ln V units of
// fp32's roundoff: below what the order of a sum of V terms may change.
template <class D>
__device__ inline float exponential(float x) {
  if constexpr (sizeof(D) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  } else {
    return std::exp(x);
  }
}

// The threads that share a row. What `all` brings together has a place for every warp of every slice in every block.
template <int Threads>
struct Team {
  int slices, slice;

  template <class Join>
  __device__ float all(float value, float* places, float none, Join&& join) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    constexpr int warps = Threads / 32;
    for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (slices == 1) {
      if (lane == 0) places[warp] = value;
    } else if (lane < slices) {
      *cooperative_groups::this_cluster().map_shared_rank(places + slice * warps + warp, lane) = value;
    }
    meet();
    value = none;
    for (int i = lane; i < slices * warps; i += 32) value = join(value, places[i]);
    for (int offset = 16; offset > 0; offset /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
  }

  __device__ void meet() const {
    if (slices == 1)
      __syncthreads();
    else
      cooperative_groups::this_cluster().sync();
  }
};

#endif

// A cluster for every gridDim.x / slices-th row. A unit is a pack of logits, or one; V is made of whole units.
template <class S, class D, int Unit, bool Whole, int Threads>
__global__ void __launch_bounds__(Threads, 1024 / Threads) held_loss(LossRows<S, D> a, int slices) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kRounds = kHeldLogits / Unit;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  extern __shared__ uint4 stage[];
  __shared__ Arrival arrival;
  __shared__ float highs[kMostSlices * 32], sums[kMostSlices * 32];  // one is read while the other is written

  const int thread = static_cast<int>(threadIdx.x);
  const int units = a.vocabulary / Unit, each = (units + slices - 1) / slices;
  const Team<Threads> team{slices, static_cast<int>(blockIdx.x) % slices};
  const int begin = min(units, team.slice * each), mine = min(units, begin + each) - begin;
  const int first = begin * Unit;  // column
  const auto is_mine = [&](int round) { return round * Threads + thread < mine; };

  // The copy engine takes sixteen bytes at a time: with the slice come the bytes before and after it within those.
  const auto lead_of = [&](std::int64_t row) {
    return Whole ? 0u : static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(a.logits_of(row) + first) % 16);
  };
  const auto order = [&](std::int64_t row) {
    const unsigned lead = lead_of(row), bytes = lead + static_cast<unsigned>(mine * Unit * sizeof(S));
    arrival.order(stage, reinterpret_cast<const char*>(a.logits_of(row) + first) - lead, (bytes + 15) / 16 * 16);
  };
  const auto target_of = [&](std::int64_t row) { return row < a.count ? a.targets[row] : kIgnoredTarget; };

  const unsigned step = gridDim.x / slices;
  std::int64_t row = blockIdx.x / slices;
  std::int32_t target = target_of(row), next = target_of(row + step);
  if (thread == 0) {
    arrival.start();
    if (a.in_vocabulary(target)) order(row);
  }
  team.meet();  // no block writes to another before that has begun
  for (unsigned arrivals = 0; row < a.count; row += step) {
    const std::int32_t after_next = target_of(row + step + step);
    D* out = a.dlogits ? a.dlogits_of(row) + first : nullptr;
    if (a.in_vocabulary(target)) {
      arrival.wait(arrivals++ % 2);
      const S* staged = reinterpret_cast<const S*>(stage) + lead_of(row) / sizeof(S);
      int at = target - first;  // where this thread has the target; -1 where it has not
      if (at < 0 || at >= mine * Unit || at / Unit % Threads != thread) at = -1;
      const float hit = at >= 0 ? widen(staged[at]) : 0.0f;
      float v[kRounds][Unit], high = kNothing;
#pragma unroll
      for (int n = 0; n < kRounds; ++n) {
#pragma unroll
        for (int i = 0; i < Unit; ++i) v[n][i] = kNothing;
        if (is_mine(n)) read<Whole>(v[n], staged + (n * Threads + thread) * Unit, Unit);
      }
#pragma unroll
      for (int n = 0; n < kRounds; ++n)
#pragma unroll
        for (int i = 0; i < Unit; ++i) high = max(high, v[n][i]);
      const float top = team.all(high, highs, kNothing, [](float x, float y) { return max(x, y); });
      if (thread == 0 && a.in_vocabulary(next)) order(row + step);

      const float from = base_of(top);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kRounds; ++n)
        if (n * Threads < mine) {  // the same for the whole block; what a thread has not adds zero
          float of_unit = 0;
#pragma unroll
          for (int i = 0; i < Unit; ++i) of_unit += v[n][i] = exponential<D>(v[n][i] - from);
          sum += of_unit;
        }
      const float total = team.all(sum, sums, 0.0f, [](float x, float y) { return x + y; });
      if (at >= 0) a.losses[row] = std::log(total) + (top - hit);
      if (at >= 0 && a.likeliest) a.likeliest[row] = hit >= top;  // all blocks have met in this row: its target is read
      if (out) {
        const float factor = *a.scale / total;
#pragma unroll
        for (int n = 0; n < kRounds; ++n)
          if (is_mine(n)) {
#pragma unroll
            for (int i = 0; i < Unit; ++i) v[n][i] *= factor;
            write<Whole>(out + (n * Threads + thread) * Unit, v[n], Unit);
          }
        // Over what this thread has just written: (p - 1)·scale rounds once in a narrow type.
        if (at >= 0) out[at] = narrow<D>((exponential<D>(hit - from) / total - 1.0f) * *a.scale);
      }
    } else {
      if (thread == 0 && a.in_vocabulary(next)) order(row + step);
      float value[Unit];
      for (int i = 0; i < Unit; ++i) value[i] = without_target<float>(target);
      if (team.slice == 0 && thread == 0) a.losses[row] = value[0];
      for (int unit = thread; out && unit < mine; unit += Threads) write<Whole>(out + unit * Unit, value, Unit);
    }
    target = next;
    next = after_next;
  }
#endif
}

// False where the row does not fit, or the GPU has no clusters or not enough shared memory.
template <class S, class D, int Unit, bool Whole>
bool launch_held(const LossRows<S, D>& rows, cudaStream_t stream) {
  const RowCut cut = cut_of(rows.vocabulary / Unit, Unit);
  if (cut.slices == 0) return false;
  const auto kernel = cut.threads == 128   ? held_loss<S, D, Unit, Whole, 128>
                      : cut.threads == 512 ? held_loss<S, D, Unit, Whole, 512>
                                           : held_loss<S, D, Unit, Whole, 1024>;
  cudaFuncAttributes code{};
  check_cuda(cudaFuncGetAttributes(&code, kernel), "cross_entropy");
  int device = 0, room = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  const std::int64_t slice = ceil_div(rows.vocabulary / Unit, cut.slices) * Unit * static_cast<std::int64_t>(sizeof(S));
  const int stage = static_cast<int>(round_up(slice, 16)) + 16;  // and a lead
  if (code.ptxVersion < 90 || stage + static_cast<int>(code.sharedSizeBytes) > room) return false;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, stage), "cross_entropy");
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
      "cross_entropy");

  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(cut.slices);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cut.slices));
  config.blockDim = dim3(static_cast<unsigned>(cut.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(stage);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  // As many clusters as run at once: a row is fetched while the one before is computed.
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "cudaOccupancyMaxActiveClusters");
  if (clusters == 0) return false;
  config.gridDim.x *= static_cast<unsigned>(std::clamp<std::int64_t>(rows.count, 1, clusters));
  check_cuda(cudaLaunchKernelEx(&config, kernel, rows, cut.slices), "cross_entropy");
  return true;
}

}  // namespace lockstep::cuda
