// cross_entropy of fp32 logits with 16-bit gradients, tried on any device: apart from the logits, and over them.
//
// The rows are the awkward ones: an ignored target, impossible words (-inf), equal logits, the last word as target,
// and, where the device gives NaN for it, a target outside the vocabulary.
#pragma once
#include <string>

#include "tensor/dtype.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::tests {

struct LossTrial {
  std::int64_t vocabulary;
  DType to;              // of dlogits
  bool strided = false;  // rows begin anywhere, with gaps between them
  bool outside = false;  // with targets outside the vocabulary
};

// "" when losses and gradients are the reference's, have the same bits in place, nothing beside them is written, and
// the targets with the largest logit are marked as such in their place; or a sentence.
std::string try_loss(const LossTrial& trial, Memory& memory, Stream& stream);

}  // namespace lockstep::tests
