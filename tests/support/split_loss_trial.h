// split_cross_entropy of a vocabulary cut into parts, tried on any device: what the whole gives, with gradients apart
// from the logits and over them.
#pragma once
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep::tests {

struct SplitLossTrial {
  std::int64_t vocabulary;
  std::int64_t part;   // columns of each part; those behind the end of the vocabulary are padding
  std::int64_t parts;  // some may have nothing but padding
  DType type = DType::f32;
  DType to = DType::f32;  // of dlogits
};

// "" when every part's losses have the same bits and are the reference's for the whole, its gradients are those of its
// columns and zero in the padding, all of it has the same bits in place, and the
// targets with the largest logit are marked as such in their place; or a sentence.
std::string try_split_loss(const SplitLossTrial& trial, Memory& memory, Stream& stream);

}  // namespace lockstep::tests
