// Softmax cross-entropy of some rows of logits, with its gradient.
//
// loss[n] = log(sum exp(logits[n])) - logits[n, target[n]]; dlogits = (softmax - onehot) · scale.
// Shapes: logits (N, V) of a float type; targets (N) int32; losses (N) in the accumulator type; scale (1), in the
// accumulator type, is the loss's weight for each token (one over the valid tokens of the global batch, times any loss
// scale), read on the device. A target outside the vocabulary throws ProgramError on the cpu, and makes its row NaN on
// cuda. A row whose target is kIgnoredTarget has loss 0 and gradient 0.
//
// dlogits (N, V) is none (evaluation), or of the logits' type, or 16-bit beside fp32 logits. It may overlay the logits,
// row by row: every row of dlogits begins at the byte where that row of logits begins (Tensor::narrowed makes such a
// view). All of a row is read before any of it is written over; what is left of its bytes has no meaning. No other
// overlap is allowed.
//
// likeliest (N) int32 is none, or gets for each row with a target 1 where no logit is larger than the target's, else 0;
// of other rows it is left as it is. It may be the memory of the targets.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr std::int32_t kIgnoredTarget = -1;

struct CrossEntropyArgs {
  Tensor losses;
  Tensor dlogits;
  ConstTensor logits;
  ConstTensor targets;
  ConstTensor scale;
  Tensor likeliest = {};
};

using CrossEntropy = void(const CrossEntropyArgs&, Stream&);
CrossEntropy cross_entropy;
namespace cpu {
CrossEntropy cross_entropy;
}
namespace cuda {
CrossEntropy cross_entropy;
}
namespace meta {
CrossEntropy cross_entropy;
}

}  // namespace lockstep
