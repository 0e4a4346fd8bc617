// Central data parallel's loss: rank 0 gathers everybody's logits, computes every loss, and deals out the gradient.
//
// Called by the head, chunk by chunk of tokens, on all ranks at once: in round i every rank brings the logits of its
// tokens [i·chunk, (i + 1)·chunk) of a micro-batch, as many of those as it has. So rank 0 holds N chunks of logits at a
// time and never all of them; what is sent is the same: a rank's tokens times the vocabulary there in the accumulator
// type, and back in the type that computes.
//
// Rank 0's buffers are taken at construction. Ranks and memory outlive this; one thread uses it.
#pragma once
#include <vector>

#include "comm/communicator.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class CentralDp {
 public:
  struct Sizes {
    std::vector<std::int64_t> tokens;  // of a micro-batch, by rank
    int micro;                         // micro-batches
    std::int64_t chunk;                // tokens a rank brings in a round
    std::int64_t vocabulary;
    DType sums, compute;  // of logits, and of their gradient
  };
  // Of the whole global batch, on rank 0; ranks one behind the other, their micro-batches in order.
  struct Targets {
    ConstTensor targets;  // int32
    ConstTensor scale;    // (1), cross-entropy's
    Tensor losses;
  };

  CentralDp(const Sizes& sizes, Communicator& ranks, Memory& memory);

  std::int64_t most_tokens() const;  // that any rank has in a micro-batch: how far the rounds go
  // `logits` (n, V) of this rank's tokens from `first` on; n may be 0. With `training`, their gradient is written into
  // d_logits (n, V), contiguous, which may be the memory of the logits. Targets: rank 0's alone.
  void run(const ConstTensor& logits, const Tensor& d_logits, int micro, std::int64_t first, bool training,
           const Targets& targets, Stream& stream) const;

 private:
  Sizes sizes_;
  Communicator& ranks_;
  Buffer logits_, d_logits_;  // of all ranks, on rank 0; one buffer where the types are one
};

}  // namespace lockstep
