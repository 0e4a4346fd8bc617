// Ring attention: causal attention of samples that are split over ranks by tokens.
//
// Every rank holds the queries, keys and values of its share of the tokens (spec/layout/context_split.h). The shares of
// keys and values travel around a ring, one rank further per turn, while the ones at hand are attended to.
//
// Forward: attention of a query to the keys S of a share gives o_S and lse_S = log Σ exp(scale · q·k). Two results join
// as
//   lse = log(exp(lse_A) + exp(lse_B)),   o = o_A · exp(lse_A − lse) + o_B · exp(lse_B − lse)
// Backward: the shares travel once more, each followed by the sum of its gradients, to which every rank that it passes
// adds; a rank's own share is done last, when the sum of all the others' has arrived. So a rank sends ring − 1 shares
// of keys and values, and in backward as many of gradients, point to point, and holds two shares at a time.
//
// A segment of queries sees a segment of keys wholly, causally (itself) or not at all; a hidden pair costs nothing. Of
// samples that are several documents, it sees of them what is of its own (kernels/attention.h). The
// order of sums is fixed: own keys first, then those of the ranks before, nearest first; gradients of keys and values
// by the ranks after their owner, nearest first, then its own. Without overlap each exchange is waited for at once and
// nothing else changes: the results are equal bit for bit. One thread uses it; ranks and memory outlive it.
#pragma once
#include <array>

#include "comm/communicator.h"
#include "kernels/attention.h"
#include "spec/layout/context_split.h"
#include "spec/model/document_pairs.h"
#include "tensor/memory.h"

namespace lockstep {

class RingAttention {
  // A tensor to the next rank, and one from the rank before.
  struct Exchange {
    Communicator::Started sent, received;
    void wait();
  };

 public:
  struct Sizes {
    std::int64_t B, T;                // of a micro-batch: samples, and tokens of a whole one, at most
    std::int64_t heads, keys, width;  // query heads and key/value heads that attention has here, and how wide they are
    DType dtype;
  };
  // The ranks are those of the ring, this one in its place. Takes room for two shares (Tag::communication).
  RingAttention(Communicator& ranks, const ContextSplit& split, bool overlap, const Sizes& sizes, Memory& memory);

  // Samples of several documents, which may begin on one rank and end on another: where in the sample the documents of
  // this share's tokens begin, (B, share) int32, and what is expected of them, for meta. None: each is one.
  struct Documents {
    ConstTensor starts = {};
    const DocumentPairs* expected = nullptr;
  };

  // q, o (B, share, H, D), k, v (B, share, K, D), as attention has them; lse (segments, B, H, segment), flat.
  struct Forward {
    Tensor o, lse;
    ConstTensor q, k, v;
    double scale;
    AttentionDropout dropout = {};  // samples and heads from where they begin
    Documents documents = {};
    Tensor part = {},
           part_lse = {};  // room for a segment's: (B, segment, H, D), (B, H, segment); none in a ring of one
    Tensor sums = {};      // in 16 bits: o in the accumulator type
  };
  void forward(const Forward& args, Stream& stream) const;

  // Keys and values that are on their way before they are needed.
  class Turning {
   public:
    // The keys and values of turn 1, 2, … one after the other, when they have come; the turn after is then on its way.
    Tensor next();

   private:
    friend RingAttention;
    Turning(const RingAttention& ring, std::int64_t T) : ring_(&ring), T_(T) {}
    void pass_on();
    const RingAttention* ring_;
    std::int64_t T_;
    int turn_ = 0;
    Exchange under_way_ = {};
  };
  [[nodiscard]] Turning begin(const ConstTensor& k, const ConstTensor& v, Stream& stream) const;

  struct Backward {
    Tensor dq, dk, dv;
    ConstTensor d_o, q, k, v, o, lse;
    double scale;
    AttentionDropout dropout = {};
    Documents documents = {};
    bool deterministic = true;
    Tensor workspace = {};  // attention's
    // None in a ring of one: room for a segment's dq, (B, segment, H, D), and for the sums of two shares' dk and dv,
    // flat, in the accumulator type.
    Tensor part_dq = {}, sums = {};
    Tensor dq_sums = {};  // in 16 bits: dq in the accumulator type
  };
  void backward(const Backward& args, Turning& turning, Stream& stream) const;

 private:
  enum class Sees { nothing, all, itself };

  int ring() const { return static_cast<int>(split_.ring); }
  int own() const { return static_cast<int>(split_.ring_rank()); }
  int share_at(int turn) const { return (own() - turn + ring()) % ring(); }  // whose keys are here then
  Exchange exchange(const ConstTensor& out, const Tensor& in) const;
  // T: the tokens of a whole sample of the call, which may have fewer than there is room for.
  std::int64_t tokens_of(const ConstTensor& share) const { return share.dim(1) * split_.ring; }
  Tensor share(int turn, std::int64_t T) const;  // keys, then values, flat
  Shape half_of(const Tensor& share) const;      // (B, its tokens, K, D)
  Tensor keys_of(const Tensor& share) const;
  Tensor values_of(const Tensor& share) const;
  Sees sees(int c, int of_share, int k) const;
  template <class X>
  X segment(const X& x, std::int64_t c) const;
  template <class X>
  X lse_of(const X& lse, std::int64_t c) const;
  DocumentMask documents_of(const Documents& documents, std::int64_t T, int c, int of_share, int k) const;
  AttentionDropout dropout_of(AttentionDropout dropout, std::int64_t T, int c, int of_share, int k) const;

  Communicator& ranks_;
  ContextSplit split_;
  bool overlap_;
  Sizes sizes_;
  Buffer shares_;
};

}  // namespace lockstep
