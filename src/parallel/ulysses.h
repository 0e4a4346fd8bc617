// Ulysses: an all-to-all that turns "some tokens, all heads" into "all tokens, some heads", and back.
//
//   to_heads    heads[b, s, j] = tokens of rank s / t, [b, s % t, first + j]     s in [0, ranks · t), j in [0, n)
//   to_tokens   the inverse
//
// Heads are dealt out evenly, n = h / ranks each. There may be fewer key/value heads than ranks: then consecutive ranks
// have the same one, and on the way back what they bring is summed, in the order of ranks. One message per call,
// however many tensors. One thread uses it; ranks and memory outlive it.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class UlyssesExchange {
 public:
  // Allocates room for what an exchange of at most `elements` sends and receives (Tag::communication).
  UlyssesExchange(Communicator& ranks, std::int64_t elements, DType dtype, Memory& memory);

  // A tensor both ways: this rank's tokens with all heads, (B, t, h, D), and the tokens of all ranks, one rank's after
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
