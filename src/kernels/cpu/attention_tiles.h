// What attention's forward and backward share: tile sizes, scratch, scores, mask and dropout.
//
// Lanes run over queries: a tile of scores is kept transposed, [key][query], so that maxima, exponentials and sums over
// keys are plain vector operations, with no sum across lanes anywhere.
#pragma once
#include <limits>

#include "base/integers.h"
#include "kernels/attention.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/tiles.h"
#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

template <class T, int kVectors = 4>  // of queries
struct AttentionTile {
  static constexpr std::int64_t kQueries = kVectors * kLanes<T>;
  static constexpr std::int64_t kKeys = 64;
  using V = Vec<T>;

  std::int64_t D, padded;  // head width, and that in whole vectors
  double scale;
  std::int64_t all_queries, all_keys;
  std::int64_t shift;  // query t sees keys up to t + shift; without the causal mask, all
  AttentionDropout dropout;
  std::int64_t first_key;                // as the documents' starts count
  const std::int32_t* starts = nullptr;  // of a sample's queries; none: one document

  template <class Args>
  explicit AttentionTile(const Args& a)
      : D(a.q.dim(3)),
        padded(round_up(D, std::int64_t{kLanes<T>})),
        scale(a.scale),
        all_queries(a.q.dim(1)),
        all_keys(a.k.dim(1)),
        shift(a.causal ? all_keys - all_queries : all_keys),
        dropout(a.dropout),
        first_key(a.documents.first_key) {}
  // The same for sample b.
  template <class Args>
  AttentionTile of_sample(const Args& a, std::int64_t b) const {
    AttentionTile tile = *this;
    if (const ConstTensor& s = a.documents.starts) tile.starts = s.template data<std::int32_t>() + b * s.stride(0);
    return tile;
  }

  // Room in the worker's scratch, cut in order.
  struct Scratch {
    T* next;
    T* take(std::int64_t elements) {
      T* p = next;
      next += elements;
      return p;
    }
  };

  std::int64_t keys_seen(std::int64_t last_query) const { return std::min(all_keys, last_query + shift + 1); }
  // The first key of a query's document; of one beyond the last, the last one's.
  std::int64_t first_seen(std::int64_t query) const {
    return starts ? std::clamp<std::int64_t>(starts[std::min(query, all_queries - 1)] - first_key, 0, all_keys) : 0;
  }
  // Where the tile of keys begins that the queries from q0 on see first.
  std::int64_t keys_from(std::int64_t q0) const { return first_seen(q0) / kKeys * kKeys; }

  // body(j, count, first) for groups of keys that share the first query which sees any of them, in whole vectors:
  // what the mask hides beyond that is neither computed nor read. One group where the mask does not cut the tile.
  template <class Body>
  void each_group(std::int64_t q0, std::int64_t k0, std::int64_t keys, Body&& body) const {
    constexpr std::int64_t W = kLanes<T>;
    if (!masked(q0, k0, keys)) return body(std::int64_t{0}, keys, std::int64_t{0});
    for (std::int64_t j = 0; j < keys; j += W) {
      const std::int64_t first = std::max<std::int64_t>(0, k0 + j - shift - q0) / W * W;
      if (first < kQueries) body(j, std::min(W, keys - j), first);
    }
  }

  // How many of the keys the vector of queries from q0 + i on sees, in whole groups.
  std::int64_t keys_of(std::int64_t q0, std::int64_t i, std::int64_t k0, std::int64_t keys) const {
    const std::int64_t seen = q0 + i + kLanes<T> + shift - k0;
    return std::clamp<std::int64_t>(round_up(seen, std::int64_t{kLanes<T>}), 0, keys);
  }

  // out[j][i] = x_j · y_i for one tile, but for hidden vectors. y_t is [D][query], x is [key][D].
  void products(T* out, TileRows<T> x, const T* y_t, std::int64_t q0, std::int64_t k0, std::int64_t keys) const {
    each_group(q0, k0, keys, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
      TileProduct<T>{out + j * kQueries + first,
                     kQueries,
                     x.data + j * x.stride,
                     x.stride,
                     1,
                     y_t + first,
                     kQueries,
                     count,
                     D,
                     false}
          .run((kQueries - first) / kLanes<T>);
    });
  }

  bool masked(std::int64_t q0, std::int64_t k0, std::int64_t keys) const {
    return k0 + keys - 1 > q0 + shift || first_seen(q0 + kQueries - 1) > k0;
  }

  // visit(j, v, score) for every vector of a tile of products q · k that each_group covers: times scale, hidden ones
  // -inf.
  template <class Visit>
  [[gnu::always_inline]] void each_score(const T* products, std::int64_t q0, std::int64_t k0, std::int64_t keys,
                                         Visit&& visit) const {
    constexpr int W = kLanes<T>;
    const V factor = broadcast(static_cast<T>(scale));
    if (!masked(q0, k0, keys)) {
      for (std::int64_t j = 0; j < keys; ++j)
        for (int v = 0; v < kVectors; ++v) visit(j, v, load(products + j * kQueries + v * W) * factor);
      return;
    }
    V lane;
    for (int i = 0; i < W; ++i) lane[i] = static_cast<T>(i);
    V first_key_of[kVectors];  // relative to k0
    for (std::int64_t i = 0; i < kQueries; ++i)
      first_key_of[i / W][i % W] = static_cast<T>(std::clamp<std::int64_t>(first_seen(q0 + i) - k0, 0, kKeys));
    each_group(q0, k0, keys, [&](std::int64_t begin, std::int64_t count, std::int64_t first) {
      for (std::int64_t j = begin; j < begin + count; ++j)
        for (int v = static_cast<int>(first / W); v < kVectors; ++v) {
          const V query = lane + static_cast<T>(v * W);  // relative to q0
          const V s = load(products + j * kQueries + v * W) * factor;
          visit(j, v,
                (query >= broadcast(static_cast<T>(k0 + j - shift - q0))) &
                        (broadcast(static_cast<T>(j)) >= first_key_of[v])
                    ? s
                    : broadcast(-std::numeric_limits<T>::infinity()));
        }
    });
  }

  // factor[j][i] = 0 where dropout drops (b, head, q0 + i, k0 + j), 1/(1-p) where it keeps.
  void keep_factors(T* factor, std::int64_t b, std::int64_t head, std::int64_t q0, std::int64_t queries,
                    std::int64_t k0, std::int64_t keys) const {
    const DropoutMask mask(dropout.key, dropout.probability);
    const T kept = static_cast<T>(1 / (1 - dropout.probability));
    const std::int64_t sample = (dropout.first_sample + b) | ((dropout.first_head + head) << 40);
    std::fill_n(factor, keys * kQueries, T(0));
    for (std::int64_t i = 0; i < queries; ++i) {
      auto keep = mask.row(sample, dropout.first_query + q0 + i);
      for (std::int64_t j = 0; j < keys; ++j) factor[j * kQueries + i] = keep(dropout.first_key + k0 + j) ? kept : T(0);
    }
  }
};

// The first element of (b, t = 0, head h), and how far the next token is.
template <class S, class View>
auto head_base(const View& x, std::int64_t b, std::int64_t h) {
  return x.template data<S>() + b * x.stride(0) + h * x.stride(2);
}

}  // namespace lockstep::cpu
