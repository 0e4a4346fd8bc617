#include "kernels/elementwise.h"

#include "kernels/cuda/flat.cuh"

namespace lockstep::cuda {

namespace {

// A pack has 16 bytes of the widest operand; a thread has two of them under way.
template <class... S>
constexpr int kPack = 16 / static_cast<int>(std::max({sizeof(S)...}));

// Calls both(i, j) for two whole packs that begin at elements i and j, and some(i, count) for a pack of fewer elements,
// or of elements that must go one by one.
template <int N, class Both, class Some>
__device__ void each_pack(std::int64_t count, bool packed, Both&& both, Some&& some) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads * N;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N; i < count; i += 2 * stride) {
    const std::int64_t j = i + stride;
    if (packed && j + N <= count) {
      both(i, j);
    } else {
      some(i, count - i);
      if (j < count) some(j, count - j);
    }
  }
}

template <class S, int N>
__device__ Pack<S, N> sum_of(const Pack<S, N>& a, const Pack<S, N>& b) {
  Pack<S, N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.at[k] = narrow<S>(widen(a.at[k]) + widen(b.at[k]));
  return y;
}

template <class S, int N>
__device__ Pack<S, N> product_of(const Pack<S, N>& x, Compute<S> factor) {
  Pack<S, N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.at[k] = narrow<S>(widen(x.at[k]) * factor);
  return y;
}

template <class To, class From, int N>
__device__ Pack<To, N> converted(const Pack<From, N>& x) {
  Pack<To, N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.at[k] = narrow<To>(widen(x.at[k]));
  return y;
}

// y may be a or b: a thread has read its packs before it writes them.
template <class S>
__global__ void __launch_bounds__(kThreads) add_all(S* y, const S* a, const S* b, std::int64_t count, bool packed) {
  constexpr int N = kPack<S>;
  each_pack<N>(
      count, packed,
      [=](std::int64_t i, std::int64_t j) {
        const auto a0 = load_pack<S, N>(a + i), b0 = load_pack<S, N>(b + i);
        const auto a1 = load_pack<S, N>(a + j), b1 = load_pack<S, N>(b + j);
        store_pack(y + i, sum_of(a0, b0));
        store_pack(y + j, sum_of(a1, b1));
      },
      [=](std::int64_t i, std::int64_t some) {
        store_some(y + i, sum_of(load_some<S, N>(a + i, some), load_some<S, N>(b + i, some)), some);
      });
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads) cast_all(To* y, const From* x, std::int64_t count, bool packed) {
  constexpr int N = kPack<To, From>;
  each_pack<N>(
      count, packed,
      [=](std::int64_t i, std::int64_t j) {
        const auto first = load_pack<From, N>(x + i), second = load_pack<From, N>(x + j);
        store_pack(y + i, converted<To>(first));
        store_pack(y + j, converted<To>(second));
      },
      [=](std::int64_t i, std::int64_t some) {
        store_some(y + i, converted<To>(load_some<From, N>(x + i, some)), some);
      });
}

// y may be x.
template <class S>
__global__ void __launch_bounds__(kThreads)
    scale_all(S* y, const S* x, Compute<S> factor, std::int64_t count, bool packed) {
  constexpr int N = kPack<S>;
  each_pack<N>(
      count, packed,
      [=](std::int64_t i, std::int64_t j) {
        const auto first = load_pack<S, N>(x + i), second = load_pack<S, N>(x + j);
        store_pack(y + i, product_of(first, factor));
        store_pack(y + j, product_of(second, factor));
      },
      [=](std::int64_t i, std::int64_t some) {
        store_some(y + i, product_of(load_some<S, N>(x + i, some), factor), some);
      });
}

template <class S>
__global__ void __launch_bounds__(kThreads) fill_all(S* y, double value, std::int64_t count, bool packed) {
  constexpr int N = kPack<S>;
  Pack<S, N> each;
#pragma unroll
  for (int k = 0; k < N; ++k) each.at[k] = narrow<S>(value);
  each_pack<N>(
      count, packed,
      [=](std::int64_t i, std::int64_t j) {
        store_pack(y + i, each);
        store_pack(y + j, each);
      },
      [=](std::int64_t i, std::int64_t some) { store_some(y + i, each, some); });
}

std::int64_t blocks_of_packs(std::int64_t count, int pack) { return ceil_div(count, 2 * pack * kThreads); }

}  // namespace

void add(const AddArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* y = args.y.data<S>();
    const S *a = args.a.data<S>(), *b = args.b.data<S>();
    const unsigned blocks = resident_blocks(add_all<S>, blocks_of_packs(count, kPack<S>));
    add_all<S><<<blocks, kThreads, 0, native(stream)>>>(y, a, b, count, packed<kPack<S>>(y, a, b));
  });
  check_launch("add");
}

void cast(const CastArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.x.dtype(), [&](auto from) {
    with_float(args.y.dtype(), [&](auto to) {
      using From = typename decltype(from)::Type;
      using To = typename decltype(to)::Type;
      constexpr int N = kPack<To, From>;
      To* y = args.y.data<To>();
      const From* x = args.x.data<From>();
      const unsigned blocks = resident_blocks(cast_all<To, From>, blocks_of_packs(count, N));
      cast_all<To, From><<<blocks, kThreads, 0, native(stream)>>>(y, x, count, packed<N>(y, x));
    });
  });
  check_launch("cast");
}

void scale(const ScaleArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    S* y = args.y.data<S>();
    const S* x = args.x.data<S>();
    const unsigned blocks = resident_blocks(scale_all<S>, blocks_of_packs(count, kPack<S>));
    scale_all<S>
        <<<blocks, kThreads, 0, native(stream)>>>(y, x, static_cast<T>(args.factor), count, packed<kPack<S>>(y, x));
  });
  check_launch("scale");
}

void fill(const FillArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    S* y = args.y.data<S>();
    const unsigned blocks = resident_blocks(fill_all<S>, blocks_of_packs(count, kPack<S>));
    fill_all<S><<<blocks, kThreads, 0, native(stream)>>>(y, args.value, count, packed<kPack<S>>(y));
  });
  check_launch("fill");
}

}  // namespace lockstep::cuda
