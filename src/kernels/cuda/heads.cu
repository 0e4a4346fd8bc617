#include "kernels/heads.h"

#include "kernels/cuda/heads.cuh"

namespace lockstep::cuda {

namespace {

// A pack has 16 bytes of the wider operand.
template <class To, class From>
constexpr int kPack = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));

template <class To, class From>
__device__ To sum_of(To y, From x) {
  using Wide = std::conditional_t<std::is_same_v<To, double> || std::is_same_v<From, double>, double, float>;
  return narrow<To>(static_cast<Wide>(widen(y)) + static_cast<Wide>(widen(x)));
}

template <class To, class From>
__device__ To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else
    return narrow<To>(widen(x));
}

// A thread has one pack of one head. y may be x: what a thread writes it has read before, and nobody else reads it.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    copy_packs(Heads<To> y, Heads<const From> x, HeadsSizes s, bool packed, bool accumulate) {
  constexpr int N = kPack<To, From>;
  const std::int64_t packs = (s.width + N - 1) / N, items = s.batch * s.length * s.heads * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; item < items; item += stride) {
    const RowPlace pack = place_of(item, packs);
    const HeadPlace head = head_of(pack.outer, s);
    const std::int64_t i = pack.inner * N;
    const Pack<From, N> in = load_part<N>(x[head], i, s.width, packed);
    Pack<To, N> out;
    if (accumulate) {
      out = load_part<N>(y[head], i, s.width, packed);
#pragma unroll
      for (int k = 0; k < N; ++k) out.at[k] = sum_of(out.at[k], in.at[k]);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) out.at[k] = converted<To>(in.at[k]);
    }
    store_part(y[head], i, s.width, packed, out);
  }
}

}  // namespace

void copy_heads(const CopyHeadsArgs& a, lockstep::Stream& stream) {
  if (a.x.elements() == 0) return;
  HeadsSizes s{.batch = a.x.dim(0), .length = a.x.dim(1), .heads = a.x.dim(2), .width = a.x.dim(3)};
  if (a.x.stride(2) == s.width && a.y.stride(2) == s.width) {  // side by side, they are one long head
    s.width *= s.heads;
    s.heads = 1;
  }
  with_float(a.x.dtype(), [&](auto from) {
    with_float(a.y.dtype(), [&](auto to) {
      using From = typename decltype(from)::Type;
      using To = typename decltype(to)::Type;
      constexpr int N = kPack<To, From>;
      const auto y = heads<To>(a.y);
      const auto x = heads<From>(a.x);
      const std::int64_t items = s.batch * s.length * s.heads * ceil_div(s.width, N);
      copy_packs<To, From>
          <<<blocks_for(items), kThreads, 0, native(stream)>>>(y, x, s, packed_heads<N>(s, y, x), a.accumulate);
    });
  });
  check_launch("copy_heads");
}

}  // namespace lockstep::cuda
