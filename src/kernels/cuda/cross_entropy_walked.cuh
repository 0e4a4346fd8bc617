// A row of any length and type, by one block that walks it twice: for the sum, and for the gradients.
//
// The order of a row's sum is a function of V alone: a thread takes every n-th logit in ascending order, then lanes (a
// butterfly) and warps are added in ascending order.
//
// dlogits may overlay logits. Of the same type, a thread writes where it alone has read. Of 16 bits over 32, element i
// is where logit i/2 was: the block walks forward in tiles, reads one whole before it writes its gradients, and so
// never writes over what is still to be read.
#pragma once
#include "kernels/cuda/cross_entropy_rows.cuh"

namespace lockstep::cuda {

inline constexpr int kWalkingThreads = 512;

// The sum of exp(logit - high) over what was seen, high the largest seen. Where nothing but -inf was, high is -inf and
// the sum zero. A NaN is no maximum, but the sum meets it.
template <class T>
struct Exponentials {
  T high = -std::numeric_limits<T>::infinity();
  T sum = 0;

  __device__ T relative_to(T top) const { return sum * std::exp(high - base_of(top)); }

  template <int N>
  __device__ void add(const T (&v)[N]) {
    T top = high;
#pragma unroll
    for (int i = 0; i < N; ++i) top = v[i] > top ? v[i] : top;
    if (top > high) {
      sum = relative_to(top);
      high = top;
    }
    const T from = base_of(high);
    T of_these = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) of_these += std::exp(v[i] - from);
    sum += of_these;
  }
};

// body(this thread's values of a tile, the column of the first; each of the others is blockDim.x further), for all
// tiles in ascending order. After the end of the row comes -inf.
template <class S, class Body>
__device__ void each_tile(const S* in, int vocabulary, Body&& body) {
  using T = Compute<S>;
  constexpr int kAhead = 8;  // read before the first is used
  const int step = static_cast<int>(blockDim.x);
  for (int begin = 0; begin < vocabulary; begin += kAhead * step) {
    const int c = begin + static_cast<int>(threadIdx.x);
    T v[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      v[n] = c + n * step < vocabulary ? static_cast<T>(widen(in[c + n * step])) : -std::numeric_limits<T>::infinity();
    body(v, c);
  }
}

template <class S, class D>
__global__ void __launch_bounds__(kWalkingThreads, sizeof(S) == 8 ? 1 : 2) walked_loss(LossRows<S, D> a) {
  using T = Compute<S>;
  const T scale = *a.scale;
  const int step = static_cast<int>(blockDim.x);
  for (std::int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const std::int32_t target = a.targets[row];
    const S* in = a.logits_of(row);
    D* out = a.dlogits ? a.dlogits_of(row) : nullptr;
    if (!a.in_vocabulary(target)) {
      const T value = without_target<T>(target);
      if (threadIdx.x == 0) a.losses[row] = value;
      for (int c = static_cast<int>(threadIdx.x); out && c < a.vocabulary; c += step) out[c] = narrow<D>(value);
      continue;
    }
    const T hit = widen(in[target]);
    Exponentials<T> seen;
    each_tile(in, a.vocabulary, [&](const auto& v, int) { seen.add(v); });
    const T top = block_max(seen.high), total = block_sum(seen.relative_to(top));
    if (threadIdx.x == 0) a.losses[row] = std::log(total) + (top - hit);
    if (threadIdx.x == 0 && a.likeliest) a.likeliest[row] = hit >= top;  // all threads have read the target
    if (!out) continue;
    const T factor = scale / total;
    // Of the target, (p - 1)·scale rounds once in a narrow type.
    const T of_target = (std::exp(hit - top) / total - T(1)) * scale;
    each_tile(in, a.vocabulary, [&]<int N>(const T(&v)[N], int c) {
      __syncthreads();  // the tile has been read
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (c + n * step < a.vocabulary)
          out[c + n * step] = narrow<D>(c + n * step == target ? of_target : std::exp(v[n] - top) * factor);
    });
  }
}

template <class S, class D>
void launch_walked(const LossRows<S, D>& rows, cudaStream_t stream) {
  const auto threads = std::clamp<std::int64_t>(round_up(rows.vocabulary, 32), 32, kWalkingThreads);
  walked_loss<S, D><<<row_blocks(rows.count), static_cast<unsigned>(threads), 0, stream>>>(rows);
  check_launch("cross_entropy");
}

}  // namespace lockstep::cuda
