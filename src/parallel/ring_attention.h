// Causal attention of samples that ranks cut between them: every rank has the queries, keys and values of a block of
// tokens (spec/layout/context_split.h), and the blocks of keys and values travel round a ring, one rank further each
// turn, while those at hand are attended to.
//
// Forward, a chunk's outputs over the keys of several blocks are joined by their log-sum-exps. Backward, blocks travel
// once more, and behind each goes the sum of its gradients, to which every rank that it passes adds; a rank's own block
// is done last, when the sum of all others has come home. So every turn but the last moves a block, and in backward a
// block of gradients too, (ring - 1) of each: point to point, and two blocks of keys and values are all that is held.
//
// Chunks see each other wholly, half (a chunk and itself) or not at all; a pair that is hidden costs nothing. The order
// of sums is fixed: own keys first and then those of the ranks before, nearest first; gradients of keys and values by
// the ranks behind their owner, nearest first, then its own. Without overlap each exchange is waited for at once, and
// nothing else changes, so no bit does. One thread uses it; ranks and memory outlive it.
#pragma once
#include <array>

#include "comm/communicator.h"
#include "kernels/attention.h"
#include "spec/layout/context_split.h"
#include "tensor/memory.h"

namespace lockstep {

class RingAttention {
  // A tensor to the rank behind, and one from the rank before.
  struct Exchange {
    Communicator::Started sent, received;
    void wait();
  };

 public:
  struct Sizes {
    std::int64_t B, T;                // of a micro-batch: samples, and tokens of a whole one
    std::int64_t heads, keys, width;  // query heads and key/value heads that attention has here, and how wide they are
    DType dtype;
  };
  // The ranks are those of the ring, this one in its place. Takes room for two blocks (Tag::communication).
  RingAttention(Communicator& ranks, const ContextSplit& split, bool overlap, const Sizes& sizes, Memory& memory);

  // q, o (B, block, H, D), k, v (B, block, K, D), as attention has them; lse (chunks, B, H, chunk), flat.
  struct Forward {
    Tensor o, lse;
    ConstTensor q, k, v;
    double scale;
    AttentionDropout dropout = {};    // samples and heads from where they begin
    Tensor part = {}, part_lse = {};  // room for a chunk's: (B, chunk, H, D), (B, H, chunk); none in a ring of one
    Tensor sums = {};                 // in 16 bits: o in the accumulator type
  };
  void forward(const Forward& args, Stream& stream) const;

  // Keys and values that are on their way before they are needed.
  class Turning {
   public:
    // The keys and values of turn 1, 2, … one after the other, when they have come; the turn after is then on its way.
    Tensor next();

   private:
    friend RingAttention;
    explicit Turning(const RingAttention& ring) : ring_(&ring) {}
    void pass_on();
    const RingAttention* ring_;
    int turn_ = 0;
    Exchange under_way_ = {};
  };
  [[nodiscard]] Turning begin(const ConstTensor& k, const ConstTensor& v, Stream& stream) const;

  struct Backward {
    Tensor dq, dk, dv;
    ConstTensor d_o, q, k, v, o, lse;
    double scale;
    AttentionDropout dropout = {};
    bool deterministic = true;
    Tensor workspace = {};  // attention's
    // None in a ring of one: room for a chunk's dq, (B, chunk, H, D), and for the sums of two blocks' dk and dv, flat,
    // in the accumulator type.
    Tensor part_dq = {}, sums = {};
    Tensor dq_sums = {};  // in 16 bits: dq in the accumulator type
  };
  void backward(const Backward& args, Turning& turning, Stream& stream) const;

 private:
  enum class Sees { nothing, all, itself };

  int ring() const { return static_cast<int>(split_.ring); }
  int own() const { return static_cast<int>(split_.ring_rank()); }
  int block_at(int turn) const { return (own() - turn + ring()) % ring(); }  // whose keys are here then
  Exchange exchange(const ConstTensor& out, const Tensor& in) const;
  Tensor block(int turn) const;  // keys, then values, flat
  Shape heads_of_block() const;  // (B, block, K, D)
  Tensor keys_of(const Tensor& block) const;
  Tensor values_of(const Tensor& block) const;
  Sees sees(int c, int of_block, int k) const;
  template <class T>
  T chunk(const T& x, std::int64_t c) const;
  template <class T>
  T lse_of(const T& lse, std::int64_t c) const;
  AttentionDropout dropout_of(AttentionDropout dropout, int c, int of_block, int k) const;

  Communicator& ranks_;
  ContextSplit split_;
  bool overlap_;
  Sizes sizes_;
  Buffer blocks_;
};

}  // namespace lockstep
