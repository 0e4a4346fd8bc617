// Attention of whole samples, forward and backward, and a rank's tokens and heads of them: what context parallelism is
// compared with.
#pragma once
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "spec/layout/context_split.h"
#include "support/tensor_box.h"

namespace lockstep::tests {

struct WholeAttention {
  static constexpr std::int64_t B = 2, D = 8;
  static constexpr double kScale = 0.3;
  static constexpr AttentionDropout kDropout{.probability = 0.25, .key = 77, .first_sample = 3, .first_head = 5};

  std::int64_t T, H, K;
  TensorBox box;
  Tensor q, k, v, d_o, o, lse, dq, dk, dv;

  WholeAttention(std::int64_t tokens, std::int64_t heads, std::int64_t keys) : T(tokens), H(heads), K(keys) {
    const auto filled = [&](std::int64_t count, double seed) {
      const Tensor t = box.make(DType::f64, {B, T, count, D});
      for (std::int64_t i = 0; i < t.elements(); ++i)
        t.data<double>()[i] = std::sin(1.7 * static_cast<double>(i * i % 1009) + seed);
      return t;
    };
    q = filled(H, 1), k = filled(K, 2), v = filled(K, 3), d_o = filled(H, 4);
    o = box.make(DType::f64, {B, T, H, D}), dq = box.make(DType::f64, {B, T, H, D});
    dk = box.make(DType::f64, {B, T, K, D}), dv = box.make(DType::f64, {B, T, K, D});
    lse = box.make(DType::f64, {B, H, T});
    attention_forward({.o = o, .lse = lse, .q = q, .k = k, .v = v, .scale = kScale, .dropout = kDropout}, box.stream());
    attention_backward({.dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .d_o = d_o,
                        .q = q,
                        .k = k,
                        .v = v,
                        .o = o,
                        .lse = lse,
                        .scale = kScale,
                        .dropout = kDropout},
                       box.stream());
  }

  // This rank's tokens of a whole tensor, all its heads: (B, tokens, heads, D).
  static std::vector<double> own(const Tensor& all, const ContextSplit& split) {
    const std::int64_t T = all.dim(1), heads = all.dim(2);
    std::vector<double> values;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < split.tokens(T); ++t)
        for (std::int64_t i = 0; i < heads * D; ++i)
          values.push_back(all.data<double>()[(b * T + split.position(T, t)) * heads * D + i]);
    return values;
  }
};

}  // namespace lockstep::tests
