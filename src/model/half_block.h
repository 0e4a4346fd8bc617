// The two halves of a transformer block (block.h) as a unit each: attention with its norm, and the feed-forward part
// with its norm.
//
// What one hands to the other is a slot between units, as blocks hand theirs on: it is kept from the forward to the
// backward also where a whole block would recompute it. A half is gathered, reduced and updated by itself, and computes
// what it computes in a whole block, to the bit.
#pragma once
#include "model/attention_branch.h"
#include "model/feed_forward_branch.h"

namespace lockstep {

class AttentionHalf final : public Unit {
 public:
  AttentionHalf(const Build& build, int unit, std::int64_t layer, const Between& between);

  void forward(const Call& call) const override;
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override { branch_.backward_weight(slots_, call.again()); }

 private:
  AttentionBranch branch_;
  BranchSlots slots_;
  bool forward_again_;
};

class FeedForwardHalf final : public Unit {
 public:
  FeedForwardHalf(const Build& build, int unit, std::int64_t layer, const Between& between);

  void forward(const Call& call) const override { branch_.forward(slots_, {}, call); }
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override { branch_.backward_weight(slots_, call.again()); }

 private:
  FeedForwardBranch branch_;
  BranchSlots slots_;
  bool forward_again_;
};

}  // namespace lockstep
