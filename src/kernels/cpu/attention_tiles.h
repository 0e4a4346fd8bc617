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

template <class T>
struct AttentionTile {
  static constexpr std::int64_t kQueries = 4 * kLanes<T>;
  static constexpr std::int64_t kKeys = 64;
  using V = Vec<T>;

  std::int64_t D, padded;  // head width, and that in whole vectors
  double scale;
  bool causal;
  std::int64_t shift;  // query t sees keys up to t + shift
  AttentionDropout dropout;

  // Room in the worker's scratch, cut in order.
  struct Scratch {
    T* next;
    T* take(std::int64_t elements) {
      T* p = next;
      next += elements;
      return p;
    }
  };

  std::int64_t keys_seen(std::int64_t last_query, std::int64_t S) const {
    return causal ? std::min(S, last_query + shift + 1) : S;
  }

  // scores[j][i] = scale · q_i · k_j for one tile, hidden ones -inf. q_t is [D][query], k is [key][D].
  void scores(T* out, const T* q_t, const T* k, std::int64_t q0, std::int64_t k0, std::int64_t keys) const {
    TileProduct<T>{out, kQueries, k, padded, 1, q_t, kQueries, keys, D, false}.run(4);
    const bool masked = causal && k0 + keys - 1 > q0 + shift;
    V lane;
    for (int i = 0; i < kLanes<T>; ++i) lane[i] = static_cast<T>(i);
    for (std::int64_t j = 0; j < keys; ++j)
      for (int v = 0; v < 4; ++v) {
        T* p = out + j * kQueries + v * kLanes<T>;
        V s = load(p) * static_cast<T>(scale);
        if (masked) {
          const V query = lane + static_cast<T>(v * kLanes<T>);  // relative to q0
          s = query >= broadcast(static_cast<T>(k0 + j - shift - q0)) ? s
                                                                      : broadcast(-std::numeric_limits<T>::infinity());
        }
        store(p, s);
      }
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
