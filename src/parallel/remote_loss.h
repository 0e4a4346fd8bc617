// Losses that another rank computes: the head gives it logits, tile by tile of tokens, and gets their gradient back.
//
// All ranks call run() for the same tiles, in the same order.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class RemoteLoss {
 public:
  // Of the rank that computes the losses: the samples of the global batch in their order.
  struct Tensors {
    ConstTensor targets;  // int32
    ConstTensor scale;    // (1), cross-entropy's
    Tensor losses;
    Tensor likeliest;  // cross-entropy's, written without training: may be the targets' memory
  };
  struct Options {
    Tensors tensors;
    std::int64_t tile;  // tokens that a rank brings in one call
    std::int64_t vocabulary;
    DType sums, compute;  // of logits, and of their gradient
  };

  virtual ~RemoteLoss() = default;

  // Tokens of a micro-batch on the rank that has the most: every rank runs as many tiles.
  virtual std::int64_t most_tokens() const = 0;
  // `logits` (n, V) of this rank's tokens from `first` on; n may be 0. With `training`, their gradient is written into
  // d_logits (n, V), contiguous, which may be the memory of the logits.
  virtual void run(const ConstTensor& logits, const Tensor& d_logits, int micro, std::int64_t first, bool training,
                   Stream& stream) const = 0;
};

}  // namespace lockstep
