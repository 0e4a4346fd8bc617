#include "kernels/tree_sum.h"

#include <type_traits>

#include "kernels/cuda/flat.cuh"

namespace lockstep::cuda {

namespace {

// The type partial sums are kept in.
template <class S>
using Partial = std::conditional_t<std::is_integral_v<S>, S, Compute<S>>;

// Everything a launch must know of its operands, handed over by value: no memory to fill and to keep until it has run.
template <class S, int Most>
struct Lists {
  const S* in[Most];
  S* out[Most];
  std::uint8_t joins[Most];
  int ins;
  int outs;
};

template <class S>
__device__ Partial<S> opened(S value) {
  if constexpr (std::is_integral_v<S>)
    return value;
  else
    return widen(value);
}
template <class S>
__device__ S closed(Partial<S> value) {
  if constexpr (std::is_integral_v<S>)
    return value;
  else
    return narrow<S>(value);
}

template <class A>
__device__ A joined(A a, A b, bool max) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return max ? (a > b ? a : b) : static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return max ? (a > b || a != a ? a : b) : a + b;
  }
}

template <class S, int N>
__device__ Pack<S, N> read(const S* from, bool whole, std::int64_t count) {
  return whole ? load_pack<S, N>(from) : load_some<S, N>(from, count);
}
template <class S, int N>
__device__ void write(S* to, const Pack<S, N>& pack, bool whole, std::int64_t count) {
  if (!whole)
    store_some(to, pack, count);
  else if constexpr (std::is_integral_v<S>)
    *reinterpret_cast<Pack<S, N>*>(to) = pack;
  else
    store_pack(to, pack);
}

// A thread sums a pack over all ins. Its stack of partial sums has the newest at [0] and moves as a whole, so that
// every index is known to the compiler and the stack stays in registers; memory is what takes the time.
// An out may be an in: a thread has read its pack of every in before it writes.
template <class S, int Most, int Depth>
__global__ void __launch_bounds__(kThreads)
    sum_all(const __grid_constant__ Lists<S, Most> lists, std::int64_t count, bool packed, Reduction reduction) {
  constexpr int N = 16 / static_cast<int>(sizeof(S));
  using A = Partial<S>;
  const bool max = reduction == Reduction::max;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads * N;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N; i < count; i += stride) {
    const bool whole = packed && i + N <= count;
    A partial[Depth][N] = {};
    for (int in = 0; in < lists.ins; ++in) {
      const Pack<S, N> x = read<S, N>(lists.in[in] + i, whole, count - i);
#pragma unroll
      for (int d = Depth - 1; d > 0; --d)
#pragma unroll
        for (int k = 0; k < N; ++k) partial[d][k] = partial[d - 1][k];
#pragma unroll
      for (int k = 0; k < N; ++k) partial[0][k] = opened(x.at[k]);
      for (int some = lists.joins[in]; some > 0; --some) {
#pragma unroll
        for (int k = 0; k < N; ++k) partial[0][k] = joined(partial[1][k], partial[0][k], max);
#pragma unroll
        for (int d = 1; d + 1 < Depth; ++d)
#pragma unroll
          for (int k = 0; k < N; ++k) partial[d][k] = partial[d + 1][k];
      }
    }
    Pack<S, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (!std::is_integral_v<S>)
        if (reduction == Reduction::mean) partial[0][k] /= static_cast<A>(lists.ins);
      y.at[k] = closed<S>(partial[0][k]);
    }
    for (int out = 0; out < lists.outs; ++out) write(lists.out[out] + i, y, whole, count - i);
  }
}

template <class S, int Most, int Depth>
void launch(const TreeSumArgs& args, lockstep::Stream& stream) {
  constexpr int N = 16 / static_cast<int>(sizeof(S));
  Lists<S, Most> lists{};
  lists.ins = static_cast<int>(args.ins.size());
  lists.outs = static_cast<int>(args.outs.size());
  bool whole_packs = true;
  for (int i = 0; i < lists.ins; ++i) {
    lists.in[i] = args.ins[i].template data<S>();
    lists.joins[i] = args.joins[i];
    whole_packs = whole_packs && packed<N>(lists.in[i]);
  }
  for (int i = 0; i < lists.outs; ++i) {
    lists.out[i] = args.outs[i].template data<S>();
    whole_packs = whole_packs && packed<N>(lists.out[i]);
  }
  const std::int64_t count = args.ins[0].elements();
  const unsigned blocks = resident_blocks(sum_all<S, Most, Depth>, ceil_div(count, N * kThreads));
  sum_all<S, Most, Depth><<<blocks, kThreads, 0, native(stream)>>>(lists, count, whole_packs, args.reduction);
}

// How many partial sums these joins keep at once.
int highest(const TreeSumArgs& args) {
  int height = 0, most = 0;
  for (const int some : args.joins) {
    most = std::max(most, ++height);
    height -= some;
  }
  return most;
}

// Few operands, as ranks that share a GPU are, do not pay for the room that many need.
constexpr std::size_t kFew = 16;
constexpr int kFewPartials = 6;

template <class S>
void sum(const TreeSumArgs& args, lockstep::Stream& stream) {
  if (args.ins.size() <= kFew && args.outs.size() <= kFew && highest(args) <= kFewPartials)
    launch<S, kFew, kFewPartials>(args, stream);
  else
    launch<S, kMostSummands, kMostPartials>(args, stream);
}

template <class S>
void load() {
  cudaFuncAttributes attributes;  // asking for them loads the kernel
  check_cuda(cudaFuncGetAttributes(&attributes, sum_all<S, kFew, kFewPartials>), "loading tree_sum");
  check_cuda(cudaFuncGetAttributes(&attributes, sum_all<S, kMostSummands, kMostPartials>), "loading tree_sum");
}

}  // namespace

void tree_sum(const TreeSumArgs& args, lockstep::Stream& stream) {
  switch (args.ins[0].dtype()) {
    case DType::i32:
      sum<std::int32_t>(args, stream);
      break;
    case DType::i64:
      sum<std::int64_t>(args, stream);
      break;
    default:
      with_float(args.ins[0].dtype(), [&](auto s) { sum<typename decltype(s)::Type>(args, stream); });
  }
  check_launch("tree_sum");
}

void load_tree_sum() {
  load<std::int32_t>();
  load<std::int64_t>();
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    with_float(dtype, [](auto s) { load<typename decltype(s)::Type>(); });
}

}  // namespace lockstep::cuda
