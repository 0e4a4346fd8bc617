// One transformer block: mid = x + attention(norm1(x)); y = mid + mlp(norm2(mid)).
//
// Its two branches (attention_branch.h, feed_forward_branch.h) are one unit here, or a unit each (half_block.h). x, y
// and their gradients are the slots between units; y and dx are this block's to write, x and dy its to read. Outputs of
// the norms that are not kept are recomputed in the input phase (model/recompute.h); where nothing but x is kept, the
// input phase begins with the forward.
#pragma once
#include "model/attention_branch.h"
#include "model/feed_forward_branch.h"

namespace lockstep {

class Block final : public Unit {
 public:
  Block(const Build& build, int unit, std::int64_t layer, const Between& between);

  void forward(const Call& call) const override;
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override;

 private:
  FeedForwardBranch::Joining attend(const Call& call) const;

  BlockNames names_;
  Slot d_mid_amax_;
  // In the order of the forward, which is the order in which slots are declared.
  AttentionBranch attention_;
  Slot d_mid_, mid_;
  FeedForwardBranch feed_forward_;
  BranchSlots of_attention_, of_feed_forward_;
  bool forward_again_;
};

}  // namespace lockstep
