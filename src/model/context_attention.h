// A block's attention under context parallelism (parallel/context_parallel.h): the slots it needs, and its forward and
// backward from this rank's tokens to attention's outputs and back.
//
// Where heads are exchanged, attention keeps its own queries, keys, values and outputs from the forward on, so that
// backward exchanges gradients alone; what was projected is then needed only by the norms of queries and keys, if there
// are any.
#pragma once
#include "kernels/attention.h"
#include "model/build.h"

namespace lockstep {

class ContextAttention {
 public:
  struct Sizes {
    std::int64_t heads, keys, width;  // of the ranks that cut layers
    bool keeps;                       // what was projected in the forward; false: backward projects again
  };
  ContextAttention(const Build& build, int unit, const Sizes& sizes);

  struct Heads {
    Tensor q, k, v;  // (B, T, heads, D): of this rank's tokens
  };
  void forward(const Tensor& o, const Heads& in, const AttentionDropout& dropout, const Call& call) const;
  // Sends keys and values on their way, before the gradient is there.
  [[nodiscard]] RingAttention::Turning begin_backward(const Heads& in, const Call& call) const;
  void backward(const Heads& gradients, const Tensor& d_o, const Tensor& o, const Heads& in,
                const AttentionDropout& dropout, RingAttention::Turning& turning, const Call& call) const;

  bool exchanges_heads() const { return split_.heads > 1; }

 private:
  // Of the share's tokens, with the heads that are exchanged: where they are not, what there is.
  Heads share_heads(Slot slot, const Heads& own, const Call& call) const;
  Tensor share_mixed(Slot slot, const Tensor& own, const Call& call) const;
  void exchange_projected(Slot to, const Heads& in, const Call& call) const;

  ContextSplit split_;
  std::int64_t B_;
  std::int64_t H_, K_, D_;  // heads that attention has here
  bool deterministic_;
  std::shared_ptr<const DocumentPairs> documents_;
  Slot lse_, workspace_ = -1;
  Slot projected_ = -1, projected_again_ = -1, mixed_ = -1, d_projected_ = -1,
       d_mixed_ = -1;                                              // where heads are exchanged
  Slot part_ = -1, part_lse_ = -1, part_dq_ = -1, dkv_sums_ = -1;  // in a ring
  Slot sums_ = -1, dq_sums_ = -1;                                  // there, in 16 bits
};

}  // namespace lockstep
