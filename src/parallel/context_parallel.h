// The ranks that cut every sample between them, and what attention needs of them: the exchange of heads between
// neighbours and the ring of keys and values (spec/layout/context_split.h says who is who).
//
// One thread uses it; ranks and memory outlive it.
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
    // Of a micro-batch, as without the cut: samples, tokens of a whole one, heads of the ranks that cut layers.
    RingAttention::Sizes sizes;
  };
  ContextParallel(Communicator& ranks, const Options& options, Memory& memory);

  const UlyssesExchange& heads() const { return heads_; }
  const RingAttention& ring() const { return ring_; }
  std::int64_t first_head() const { return own_.queries.first; }  // of the query heads that attention has here

 private:
  HeadSplit own_;
  std::unique_ptr<Communicator> own_heads_, own_ring_;  // of fewer than all of them
  UlyssesExchange heads_;
  RingAttention ring_;
};

}  // namespace lockstep
