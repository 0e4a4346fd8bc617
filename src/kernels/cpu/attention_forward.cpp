#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

// In tiles of kVectors vectors of queries; no bit depends on it.
template <class S, int kVectors>
void forward(const AttentionForwardArgs& a, Stream& stream) {
  using T = Compute<S>;
  using Tile = AttentionTile<T, kVectors>;
  using V = Vec<T>;
  constexpr int W = kLanes<T>;
  constexpr std::int64_t BQ = Tile::kQueries, BK = Tile::kKeys;
  const std::int64_t T_ = a.q.dim(1), H = a.q.dim(2), D = a.q.dim(3), group = H / a.k.dim(2);
  const Tile all(a);
  const std::int64_t tiles = ceil_div(T_, BQ), P = all.padded;
  T* lse = a.lse.data<T>();

  stream.workers().each(a.q.dim(0) * H * tiles, [&](std::int64_t item, int worker) {
    // The last tile first: under the causal mask it has most to do.
    const std::int64_t b = item / (H * tiles), h = item / tiles % H, q0 = (tiles - 1 - item % tiles) * BQ;
    const std::int64_t queries = std::min(BQ, T_ - q0);
    const Tile tile = all.of_sample(a, b);
    typename Tile::Scratch scratch{static_cast<T*>(stream.scratch(worker))};
    T* rows = scratch.take(BQ * P);
    T* q_t = scratch.take(P * BQ);
    T* o_t = scratch.take(P * BQ);
    T* k = scratch.take(BK * P);
    T* v = scratch.take(BK * P);
    T* p_t = scratch.take(BK * BQ);
    T* factor = scratch.take(BK * BQ);

    pack(rows, P, head_base<S>(a.q, b, h) + q0 * a.q.stride(1), a.q.stride(1), queries, BQ, D);
    transpose(q_t, BQ, rows, P, BQ, P);
    std::fill_n(o_t, P * BQ, T(0));
    const V kNothing = broadcast(-std::numeric_limits<T>::infinity());
    V top[kVectors], total[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      top[i] = kNothing;
      total[i] = V{};
    }
    const std::int64_t seen = tile.keys_seen(q0 + queries - 1);
    for (std::int64_t k0 = tile.keys_from(q0); k0 < seen; k0 += BK) {
      const std::int64_t keys = std::min(BK, seen - k0);
      const auto at = [&](const ConstTensor& x, T* room) {
        return rows_in_place(room, P, head_base<S>(x, b, h / group) + k0 * x.stride(1), x.stride(1), keys, keys, D);
      };
      const TileRows<T> keys_at = at(a.k, k), values_at = at(a.v, v);
      tile.products(p_t, keys_at, q_t, q0, k0, keys);
      V highs[kVectors];
      std::copy_n(top, kVectors, highs);
      tile.each_score(p_t, q0, k0, keys, [&](std::int64_t j, int i, V score) {
        store(p_t + j * BQ + i * W, score);
        highs[i] = max_of<T>(score, highs[i]);
      });
      for (int i = 0; i < kVectors; ++i) {
        // A query whose document has not begun yet has seen nothing.
        const V high = tile.starts ? (highs[i] == kNothing ? V{} : highs[i]) : highs[i];
        const V shrink = exp(top[i] - high);
        V sums = total[i] * shrink;
        const std::int64_t some = tile.keys_of(q0, i * W, k0, keys);
        for (std::int64_t j = 0; j < some; ++j) {
          const V p = exp(load(p_t + j * BQ + i * W) - high);
          sums += p;
          store(p_t + j * BQ + i * W, p);
        }
        for (std::int64_t d = 0; d < D; ++d) store(o_t + d * BQ + i * W, load(o_t + d * BQ + i * W) * shrink);
        top[i] = highs[i];
        total[i] = sums;
      }
      if (a.dropout.probability > 0) {
        tile.keep_factors(factor, b, h, q0, queries, k0, keys);
        for (std::int64_t i = 0; i < keys * BQ; i += W) store(p_t + i, load(p_t + i) * load(factor + i));
      }
      tile.each_group(q0, k0, keys, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
        TileProduct<T>{
            o_t + first, BQ,  values_at.data + j * values_at.stride, 1, values_at.stride, p_t + j * BQ + first, BQ, D,
            count,       true}
            .run((BQ - first) / W);
      });
    }
    for (int i = 0; i < kVectors; ++i) {
      const V sums = tile.starts ? (total[i] == V{} ? broadcast(T(1)) : total[i]) : total[i];  // no keys: zeros
      for (std::int64_t d = 0; d < D; ++d) store(o_t + d * BQ + i * W, load(o_t + d * BQ + i * W) / sums);
      for (int lane = 0; lane < W && i * W + lane < queries; ++lane)
        lse[(b * H + h) * T_ + q0 + i * W + lane] = top[i][lane] + std::log(total[i][lane]);
    }
    transpose(rows, P, o_t, BQ, P, BQ);
    S* out = head_base<S>(a.o, b, h) + q0 * a.o.stride(1);
    for (std::int64_t i = 0; i < queries; ++i)
      for_vectors<T>(D, [&](std::int64_t d, auto load, auto store) {
        store(out + i * a.o.stride(1) + d, load(rows + i * P + d));
      });
  });
}

}  // namespace

void attention_forward(const AttentionForwardArgs& a, lockstep::Stream& stream) {
  with_float(a.q.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    // A token that is generated is one query: a full tile would be hidden lanes.
    if (a.q.dim(1) <= kLanes<Compute<S>>)
      forward<S, 1>(a, Stream::of(stream));
    else
      forward<S, 4>(a, Stream::of(stream));
  });
}

}  // namespace lockstep::cpu
