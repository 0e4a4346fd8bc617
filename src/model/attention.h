// Causal self-attention of a block: the fused query/key/value projection, the optional norms of queries and keys, RoPE,
// attention, and the output projection.
//
// One activation holds queries, keys and values side by side, (B·T, (H + 2K)·D); attention reads them as views of it.
// RoPE turns queries and keys in place. Families that normalise queries and keys (Qwen3) keep the turned ones in a
// second activation, since backward needs both. Where projections are not kept (model/recompute.h), backward-input
// recomputes them, in slots of its own. With a cache, the T queries see what it holds too (cached_attention.h). Where
// ranks cut layers between them, H and K are this rank's heads; where they cut samples, attention is theirs together
// (context_attention.h).
#pragma once
#include <optional>

#include "kernels/attention.h"
#include "model/build.h"
#include "model/cached_attention.h"
#include "model/context_attention.h"
#include "model/dropout.h"
#include "model/held_gradient.h"
#include "model/names.h"
#include "model/split_linear.h"

namespace lockstep {

// RMSNorm of each head's queries or keys, over the head width.
class HeadNorm {
 public:
  HeadNorm(UnitLayout& layout, const Build& build, int unit, const std::string& name, std::int64_t heads);
  void forward(Tensor y, ConstTensor x, const Call& call) const;                          // (B·T, heads, D)
  void backward_input(Tensor dx, ConstTensor dy, ConstTensor x, const Call& call) const;  // dx may be dy
  void backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const;

 private:
  double eps_;
  bool frozen_;
  int weight_;
  Slot rstd_;
  HeldGradient held_;
};

class Attention {
 public:
  // dy_amax: where the largest magnitude of dy is, if whoever writes dy finds it.
  Attention(UnitLayout& layout, const Build& build, int unit, const BlockNames& names, Slot dy_amax = -1);
  // Queries, keys and values of a token on this rank: outputs of its first projection.
  static std::int64_t inputs(const Build& build);
  // Whether the last projection's products are of FP8.
  static bool ends_in_fp8(const Build& build);
  Tensor inputs_amax(const Call& call) const { return qkv_.inputs_amax(call); }  // x's, for whoever writes it

  void forward(Tensor y, const ProductInput& x, const Call& call, ConstTensor residual = {}) const;  // y = … + residual
  // The forward's second run: what backward needs of it.
  void recompute(const ProductInput& x, const Call& call) const;
  // x is needed where the projection is recomputed. dx none: nobody wants it.
  void backward_input(Tensor dx, ConstTensor dy, const ProductInput& x, const Call& call) const;
  void backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const;

 private:
  // Queries, keys and values; with norms of queries and keys, the turned ones apart.
  struct Projected {
    Slot fused, turned = -1;
  };
  using Heads = ContextAttention::Heads;
  Tensor heads(const Tensor& fused, std::int64_t first, std::int64_t count) const;  // (B·T, count, D)
  Tensor split(const Tensor& rows) const;                               // (B·T, heads, D) -> (B, T, heads, D)
  void finish_projection(const Projected& to, const Call& call) const;  // norms and RoPE
  Heads inputs(const Projected& from, const Call& call) const;          // what attention reads
  AttentionDropout dropout(const Call& call) const;
  DocumentMask documents(const Call& call) const;
  void attend(const Call& call) const;
  // dq and dk are those of the turned ones.
  void attend_backward(const Heads& gradients, const Heads& in, const Call& call) const;
  void turn(const Tensor& queries_and_keys, bool inverse, const Call& call, const Tensor& amax = {}) const;
  // d_fused is complete when they are turned.
  bool measures_by_turning() const { return rope_ && !query_norm_; }

  std::int64_t B_;
  HeadSplit heads_;
  std::int64_t H_, K_, D_;
  bool rope_;
  ColumnLinear qkv_;
  RowLinear out_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  std::optional<ContextAttention> context_;  // where samples are cut
  CachedAttention cached_;
  DropoutSite dropout_;
  bool deterministic_;
  double pairs_;             // expected of samples that are several documents
  Projected first_, again_;  // in the forward and for the backward: the same where it is kept
  Slot mixed_, d_fused_, d_mixed_;
  Slot lse_ = -1;        // where samples are whole
  Slot d_normed_ = -1;   // only with query and key norms
  Slot workspace_ = -1;  // only where the kernels ask for one
};

}  // namespace lockstep
