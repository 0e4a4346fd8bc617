#include "kernels/attention_merge.h"

#include <limits>

#include "kernels/cuda/heads.cuh"

namespace lockstep::cuda {

namespace {

// A pack has 16 bytes of the wider operand.
template <class O, class P>
constexpr int kPack = 16 / static_cast<int>(std::max(sizeof(O), sizeof(P)));

// What a query's two sides weigh, together 1; the elements of a side that has seen no keys are not even read.
template <class T>
struct Weights {
  bool old_counts, part_counts;
  T old_weight = 0, part_weight = 0;
  T lse;

  __device__ Weights(T old_lse, T part_lse, T nothing)
      : old_counts(old_lse != nothing), part_counts(part_lse != nothing), lse(nothing) {
    if (!old_counts && !part_counts) return;
    const T top = max(old_lse, part_lse);  // a NaN that it loses comes out of the exponentials
    const T w = exp(old_lse - top), v = exp(part_lse - top), total = w + v;
    old_weight = w / total;
    part_weight = v / total;
    lse = top + log(total);
  }
};

// A team of 1 << `team` lanes of a warp has one head of one query, a pack for each of them in turn. All of them have
// read the query's lse before the first writes it, and nobody else reads it.
template <class O, class P>
__global__ void __launch_bounds__(kThreads)
    merge_packs(Heads<O> o, Compute<P>* lse, Heads<const P> part, const Compute<P>* part_lse, HeadsSizes s,
                Compute<P> nothing, int team, bool first, bool packed) {
  using T = Compute<P>;
  constexpr int N = kPack<O, P>;
  const std::int64_t items = (s.batch * s.length * s.heads) << team, stride = std::int64_t{gridDim.x} * kThreads;
  const unsigned lane = threadIdx.x % 32, member = threadIdx.x & ((1u << team) - 1);
  // A warp stays together, to the last query that any of its lanes has.
  for (std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; item - lane < items; item += stride) {
    const bool mine = item < items;
    const HeadPlace at = head_of(mine ? item >> team : 0, s);
    const std::int64_t query = (at.b * s.heads + at.h) * s.length + at.t;
    const T old_lse = mine && !first ? lse[query] : nothing, more_lse = mine ? part_lse[query] : nothing;
    __syncwarp();
    if (!mine) continue;
    const Weights<T> weights(old_lse, more_lse, nothing);
    for (std::int64_t i = std::int64_t{member} * N; i < s.width; i += std::int64_t{N} << team) {
      T sum[N] = {};
      if (weights.old_counts) {
        const Pack<O, N> old = load_part<N>(o[at], i, s.width, packed);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] = widen(old.at[k]) * weights.old_weight;
      }
      if (weights.part_counts) {
        const Pack<P, N> more = load_part<N>(part[at], i, s.width, packed);
#pragma unroll
        for (int k = 0; k < N; ++k)
          sum[k] = weights.old_counts ? fma(widen(more.at[k]), weights.part_weight, sum[k])
                                      : widen(more.at[k]) * weights.part_weight;
      }
      Pack<O, N> merged;
#pragma unroll
      for (int k = 0; k < N; ++k) merged.at[k] = narrow<O>(sum[k]);
      store_part(o[at], i, s.width, packed, merged);
    }
    if (member == 0) lse[query] = weights.lse;
  }
}

// The smallest power of two of lanes that has a pack each, or all lanes of a warp.
int team_for(std::int64_t packs) {
  int team = 0;
  while (team < 5 && (std::int64_t{1} << team) < packs) ++team;
  return team;
}

}  // namespace

void attention_merge(const AttentionMergeArgs& a, lockstep::Stream& stream) {
  const HeadsSizes s{.batch = a.part.dim(0), .length = a.part.dim(1), .heads = a.part.dim(2), .width = a.part.dim(3)};
  const std::int64_t queries = s.batch * s.length * s.heads;
  if (queries == 0) return;
  with_float_and_result(a.part.dtype(), a.o.dtype(), [&](auto p, auto r) {
    using P = typename decltype(p)::Type;
    using O = typename decltype(r)::Type;
    using T = Compute<P>;
    constexpr int N = kPack<O, P>;
    const auto o = heads<O>(a.o);
    const auto part = heads<P>(a.part);
    const int team = team_for(ceil_div(s.width, N));
    merge_packs<O, P><<<blocks_for(queries << team), kThreads, 0, native(stream)>>>(
        o, a.lse.data<T>(), part, a.part_lse.data<T>(), s, -std::numeric_limits<T>::infinity(), team, a.first,
        packed_heads<N>(s, o, part));
  });
  check_launch("attention_merge");
}

}  // namespace lockstep::cuda
