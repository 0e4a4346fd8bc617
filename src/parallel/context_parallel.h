// Context parallelism: the ranks that split every sample by tokens, and what attention needs of them.
//
// They form a grid of ring · heads ranks (spec/layout/context_split.h). The `heads` ranks of a share exchange heads
// (parallel/ulysses.h), so that each has all tokens of the share and 1/heads of its heads; the shares' keys and values
// travel around the ring (parallel/ring_attention.h). cp_kind "ring" is heads = 1, "ulysses" is ring = 1, "RxU" is
// both.
//
// All ranks construct theirs at the same point. One thread uses it; ranks and memory outlive it.
#pragma once
#include <memory>

#include "parallel/ring_attention.h"
#include "parallel/ulysses.h"
#include "spec/layout/context_split.h"
#include "spec/layout/tensor_split.h"

namespace lockstep {

class ContextParallel {
 public:
  struct Options {
    ContextSplit split;
    bool overlap = true;
    // Of a micro-batch before the split: samples, tokens of a whole one, and the heads that tensor parallelism left.
    RingAttention::Sizes sizes;
  };
  ContextParallel(Communicator& ranks, const Options& options, Memory& memory);

  const UlyssesExchange& heads() const { return heads_; }
  const RingAttention& ring() const { return ring_; }
  std::int64_t first_head() const { return own_.queries.first; }  // of the query heads that attention has here

 private:
  HeadSplit own_;
  std::unique_ptr<Communicator> own_heads_, own_ring_;  // groups of fewer than all ranks
  UlyssesExchange heads_;
  RingAttention ring_;
};

}  // namespace lockstep
