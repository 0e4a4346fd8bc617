// Attention's backward: probabilities are recomputed tile by tile from the log-sum-exp.
//
// Two kernels, so that each gradient has one writer and no float is added atomically: one over tiles of queries for dq,
// one over tiles of keys for dk and dv. Both recompute the scores; neither needs memory beyond its operands. They do
// what cuDNN's fused kernel does not take.
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/hopper_attention.h"

namespace lockstep::cuda {

namespace {

template <class S>
struct BackwardCall {
  using T = Compute<S>;
  HeadView<S> dq, dk, dv;
  HeadView<const S> d_o, q, k, v, o;
  const T* lse;
  AttentionProblem<T> problem;
};

// The log-sum-exp of the tile's queries, and delta_i = Σ_d do_id · o_id, into shared memory. The next __syncthreads()
// shows them.
template <class S, class T = Compute<S>>
__device__ void load_statistics(typename AttentionTile<T>::Shared& shared, HeadRows<const S> d_o, HeadRows<const S> o,
                                const T* lse, int width) {
  using Tile = AttentionTile<T>;
  for (int i = 0; i < Tile::N; ++i) {
    const int r = Tile::row() + i, lane = static_cast<int>(threadIdx.x) % Tile::kSide;
    T sum = 0;
    if (r < o.count)
      for (int d = lane; d < width; d += Tile::kSide)
        sum = multiply_add(widen(o.data[r * o.stride + d]), widen(d_o.data[r * d_o.stride + d]), sum);
    sum = Tile::sum_of_row(sum);
    if (lane == 0) {
      shared.delta[r] = sum;
      shared.lse[r] = r < o.count ? lse[r] : T(0);
    }
  }
}

// One pair of query and key. In: p = q · k and ds = do · v. Out: p is what multiplies v (after dropout), ds the
// gradient of q · k.
template <class T>
__device__ void differentiate(T& p, T& ds, T lse, T delta, T keep, T scale) {
  const T probability = exp_of(p * scale - lse);
  ds = probability * (ds * keep - delta) * scale;
  p = probability * keep;
}

// One block: a tile of queries of one head, over the keys in ascending order.
template <class S, int kSlices>
__global__ void __launch_bounds__(kThreads) backward_queries(const BackwardCall<S> call) {
  using T = Compute<S>;
  using Tile = AttentionTile<T>;
  constexpr int N = Tile::N, kRows = Tile::kRows;
  __shared__ typename Tile::Shared shared;
  const auto& problem = call.problem;
  const int width = problem.width;
  // The last tile first: under the causal mask it has most to do.
  const std::int64_t tiles = ceil_div(problem.queries, kRows), item = blockIdx.x;
  const std::int64_t b = item / (problem.heads * tiles), h = item / tiles % problem.heads;
  const std::int64_t q0 = (tiles - 1 - item % tiles) * kRows, t0 = q0 + Tile::row();
  const HeadRows<const S> q = call.q.rows(b, h, q0, kRows, problem.queries);
  const HeadRows<const S> d_o = call.d_o.rows(b, h, q0, kRows, problem.queries);
  load_statistics<S>(shared, d_o, call.o.rows(b, h, q0, kRows, problem.queries),
                     call.lse + (b * problem.heads + h) * problem.queries + q0, width);

  typename Tile::Square dq[kSlices] = {};
  std::int64_t first[N];  // key of the rows' documents
  for (int i = 0; i < N; ++i) first[i] = problem.first_seen(b, t0 + i);
  const std::int64_t seen = problem.keys_seen(q0 + q.count);
  for (std::int64_t k0 = problem.keys_from(b, q0, kRows); k0 < seen; k0 += kRows) {
    const std::int64_t s0 = k0 + Tile::column();
    const HeadRows<const S> k = call.k.rows(b, h / problem.group, k0, kRows, seen);
    typename Tile::Square p, ds;
    Tile::template dot<S>(p, shared, q, k, width);
    Tile::template dot<S>(ds, shared, d_o, call.v.rows(b, h / problem.group, k0, kRows, seen), width);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T lse = shared.lse[Tile::row() + i], delta = shared.delta[Tile::row() + i];
      auto mask = problem.mask_row(b, h, t0 + i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const T keep = problem.drops ? problem.factor(mask, s0 + j) : T(1);
        if (problem.hidden(t0 + i, s0 + j) || s0 + j < first[i])
          ds[i][j] = 0;
        else
          differentiate(p[i][j], ds[i][j], lse, delta, keep, problem.scale);
      }
    }
    Tile::set_weights(shared, ds);
    Tile::template add_product<kSlices, S>(dq, shared, k, width);
  }
  Tile::template write<kSlices, S>(call.dq.rows(b, h, q0, kRows, problem.queries), dq, width);
}

// One block: a tile of keys of one key/value head, over the query heads of its group and their queries, ascending. Here
// a tile's rows are keys and its columns queries.
template <class S, int kSlices>
__global__ void __launch_bounds__(kThreads) backward_keys(const BackwardCall<S> call) {
  using T = Compute<S>;
  using Tile = AttentionTile<T>;
  constexpr int N = Tile::N, kRows = Tile::kRows;
  __shared__ typename Tile::Shared shared;
  const auto& problem = call.problem;
  const int width = problem.width;
  // The first tile first: under the causal mask it has most to do.
  const std::int64_t tiles = ceil_div(problem.keys, kRows), item = blockIdx.x;
  const std::int64_t b = item / (problem.key_heads * tiles), kv_head = item / tiles % problem.key_heads;
  const std::int64_t k0 = item % tiles * kRows, s0 = k0 + Tile::row();
  const HeadRows<const S> k = call.k.rows(b, kv_head, k0, kRows, problem.keys);
  const HeadRows<const S> v = call.v.rows(b, kv_head, k0, kRows, problem.keys);
  // Queries that see none of these keys are skipped.
  const std::int64_t first = problem.causal && k0 > problem.shift ? (k0 - problem.shift) / kRows * kRows : 0;

  typename Tile::Square dk[kSlices] = {}, dv[kSlices] = {};
  for (std::int64_t h = kv_head * problem.group; h < (kv_head + 1) * problem.group; ++h)
    for (std::int64_t q0 = first; q0 < problem.queries; q0 += kRows) {
      if (problem.first_seen(b, q0) >= k0 + k.count) break;  // documents that begin later, as do all after them
      const std::int64_t t0 = q0 + Tile::column();
      const HeadRows<const S> q = call.q.rows(b, h, q0, kRows, problem.queries);
      const HeadRows<const S> d_o = call.d_o.rows(b, h, q0, kRows, problem.queries);
      load_statistics<S>(shared, d_o, call.o.rows(b, h, q0, kRows, problem.queries),
                         call.lse + (b * problem.heads + h) * problem.queries + q0, width);
      typename Tile::Square p, ds;
      Tile::template dot<S>(p, shared, k, q, width);
      Tile::template dot<S>(ds, shared, v, d_o, width);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const T lse = shared.lse[Tile::column() + j], delta = shared.delta[Tile::column() + j];
        const std::int64_t first_key = problem.first_seen(b, t0 + j);
        auto mask = problem.mask_row(b, h, t0 + j);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const T keep = problem.drops ? problem.factor(mask, s0 + i) : T(1);
          if (problem.hidden(t0 + j, s0 + i) || s0 + i < first_key)
            p[i][j] = ds[i][j] = 0;
          else
            differentiate(p[i][j], ds[i][j], lse, delta, keep, problem.scale);
        }
      }
      Tile::set_weights(shared, p);
      Tile::template add_product<kSlices, S>(dv, shared, d_o, width);
      Tile::set_weights(shared, ds);
      Tile::template add_product<kSlices, S>(dk, shared, q, width);
    }
  Tile::template write<kSlices, S>(call.dk.rows(b, kv_head, k0, kRows, problem.keys), dk, width);
  Tile::template write<kSlices, S>(call.dv.rows(b, kv_head, k0, kRows, problem.keys), dv, width);
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  if (hopper_attention_backward(a, stream).empty()) return;
  if (cudnn_attention_backward(a, stream).empty()) return;
  with_float(a.q.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const BackwardCall<S> call{view_heads<S>(a.dq), view_heads<S>(a.dk),   view_heads<S>(a.dv), view_heads<S>(a.d_o),
                               view_heads<S>(a.q),  view_heads<S>(a.k),    view_heads<S>(a.v),  view_heads<S>(a.o),
                               a.lse.data<T>(),     AttentionProblem<T>(a)};
    constexpr int kRows = AttentionTile<T>::kRows;
    const std::int64_t query_blocks = a.q.dim(0) * a.q.dim(2) * ceil_div(a.q.dim(1), kRows);
    const std::int64_t key_blocks = a.k.dim(0) * a.k.dim(2) * ceil_div(a.k.dim(1), kRows);
    with_slices<T>(a.q.dim(3), [&](auto slices) {
      constexpr int kSlices = decltype(slices)::value;
      if (query_blocks > 0)
        backward_queries<S, kSlices><<<static_cast<unsigned>(query_blocks), kThreads, 0, native(stream)>>>(call);
      if (key_blocks > 0)
        backward_keys<S, kSlices><<<static_cast<unsigned>(key_blocks), kThreads, 0, native(stream)>>>(call);
    });
    check_launch("attention_backward");
  });
}

}  // namespace lockstep::cuda
