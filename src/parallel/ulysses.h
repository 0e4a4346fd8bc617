// Ranks that have some tokens each, with all their heads, change over to having all of these tokens, with some heads
// each, and back: one all-to-all a change.
//
// Heads are dealt out evenly. Of key/value heads there may be fewer than ranks: then consecutive ranks get the same
// one, and on the way back what they bring is summed, in the order of ranks. One thread uses it; ranks and memory
// outlive it.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class UlyssesExchange {
 public:
  // Takes room for what goes and what comes of an exchange of so many elements (Tag::communication).
  UlyssesExchange(Communicator& ranks, std::int64_t elements, DType dtype, Memory& memory);

  // A tensor both ways: this rank's tokens with all heads, (B, t, h, D), and the tokens of all ranks, one rank's behind
  // the other's, with this rank's heads, (B, ranks · t, n, D). Heads are contiguous, all other strides free.
  struct Exchanged {
    Tensor tokens, heads;
  };
  void to_heads(std::span<const Exchanged> all, Stream& stream) const;
  void to_tokens(std::span<const Exchanged> all, Stream& stream) const;

 private:
  template <class Visit>
  std::int64_t each_part(std::span<const Exchanged> all, const Buffer& buffer, Visit&& visit) const;
  void exchange(std::int64_t elements) const;

  Communicator& ranks_;
  DType dtype_;
  Buffer going_, coming_;
};

}  // namespace lockstep
