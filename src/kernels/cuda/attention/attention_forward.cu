#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/hopper_attention.h"

namespace lockstep::cuda {

namespace {

template <class S>
struct ForwardCall {
  using T = Compute<S>;
  HeadView<S> o;
  HeadView<const S> q, k, v;
  T* lse;
  AttentionProblem<T> problem;
};

// One block: a tile of queries of one head, over the keys in ascending order.
template <class S, int kSlices>
__global__ void __launch_bounds__(kThreads) forward(const ForwardCall<S> call) {
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

  typename Tile::Square out[kSlices] = {};
  T top[N], total[N];
  std::int64_t first[N];  // key of the rows' documents
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first[i] = problem.first_seen(b, t0 + i);
    top[i] = -std::numeric_limits<T>::infinity();
    total[i] = 0;
  }
  const std::int64_t seen = problem.keys_seen(q0 + q.count);
  for (std::int64_t k0 = problem.keys_from(b, q0, kRows); k0 < seen; k0 += kRows) {
    const std::int64_t s0 = k0 + Tile::column();
    typename Tile::Square p;
    Tile::template dot<S>(p, shared, q, call.k.rows(b, h / problem.group, k0, kRows, seen), width);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      T high = top[i];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        p[i][j] = problem.hidden(t0 + i, s0 + j) || s0 + j < first[i] ? -std::numeric_limits<T>::infinity()
                                                                      : p[i][j] * problem.scale;
        high = max_of(p[i][j], high);
      }
      const T highest = Tile::max_of_row(high);
      // A query whose document has not begun yet has seen nothing.
      high = problem.starts && highest == -std::numeric_limits<T>::infinity() ? T(0) : highest;
      const T shrink = exp_of(top[i] - high);
      T sum = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        p[i][j] = exp_of(p[i][j] - high);
        sum += p[i][j];
      }
      total[i] = multiply_add(total[i], shrink, Tile::sum_of_row(sum));
      top[i] = highest;
      if (problem.drops) {
        auto row = problem.mask_row(b, h, t0 + i);
#pragma unroll
        for (int j = 0; j < N; ++j) p[i][j] *= problem.factor(row, s0 + j);
      }
#pragma unroll
      for (int c = 0; c < kSlices; ++c)
#pragma unroll
        for (int j = 0; j < N; ++j) out[c][i][j] *= shrink;
    }
    Tile::set_weights(shared, p);
    Tile::template add_product<kSlices, S>(out, shared, call.v.rows(b, h / problem.group, k0, kRows, seen), width);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const T sum = problem.starts && total[i] == 0 ? T(1) : total[i];  // no keys: zeros
#pragma unroll
    for (int c = 0; c < kSlices; ++c)
#pragma unroll
      for (int j = 0; j < N; ++j) out[c][i][j] /= sum;
    if (Tile::column() == 0 && t0 + i < problem.queries)
      call.lse[(b * problem.heads + h) * problem.queries + t0 + i] = top[i] + log_of(total[i]);
  }
  Tile::template write<kSlices, S>(call.o.rows(b, h, q0, kRows, problem.queries), out, width);
}

}  // namespace

void attention_forward(const AttentionForwardArgs& a, lockstep::Stream& stream) {
  // Without documents cuDNN is the faster one: by a sixth in heads of 64, in heads of 128 by a twentieth.
  if (!a.documents.starts && cudnn_attention_forward(a, stream).empty()) return;
  if (hopper_attention_forward(a, stream).empty()) return;
  with_float(a.q.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const ForwardCall<S> call{view_heads<S>(a.o), view_heads<S>(a.q), view_heads<S>(a.k),
                              view_heads<S>(a.v), a.lse.data<T>(),    AttentionProblem<T>(a)};
    const std::int64_t blocks = a.q.dim(0) * a.q.dim(2) * ceil_div(a.q.dim(1), AttentionTile<T>::kRows);
    if (blocks == 0) return;
    with_slices<T>(a.q.dim(3), [&](auto slices) {
      forward<S, decltype(slices)::value><<<static_cast<unsigned>(blocks), kThreads, 0, native(stream)>>>(call);
    });
    check_launch("attention_forward");
  });
}

}  // namespace lockstep::cuda
