// One transformer block: mid = x + attention(norm1(x)); y = mid + mlp(norm2(mid)).
//
// A branch's last product adds the residual before it rounds; with dropout, which comes in between, or where ranks cut
// layers between them and sum what the product gives, the branch stands by itself first. x, y and their gradients are
// the slots between units; y and dx are this block's to write, x and dy its to read. Outputs of the norms that are not
// kept are recomputed in the input phase (model/recompute.h); where nothing but x is kept, the input phase begins with
// the forward.
#pragma once
#include "model/attention.h"
#include "model/build.h"
#include "model/dropout.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace lockstep {

class Block final : public Unit {
 public:
  Block(const Build& build, int unit, std::int64_t layer, const Between& between);

  void forward(const Call& call) const override;
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override;

 private:
  void attend(const Call& call) const;  // the forward up to the second norm
  void recompute(const Call& call) const;
  // Over the activations that a backward works with.
  void input_gradients(const Call& call) const;
  void weight_gradients(const Call& call) const;

  BlockNames names_;
  Between between_;
  // In the order of the forward, which is the order in which slots are declared.
  Norm norm1_;
  Slot d_normed1_, normed1_, normed1_again_;  // again: for the backward, the same where it is kept
  Attention attention_;
  Slot d_mid_, mid_;
  Norm norm2_;
  Slot d_normed2_, normed2_, normed2_again_;
  Mlp mlp_;
  DropoutSite attention_dropout_, mlp_dropout_;
  Slot branch_ = -1;                        // only where a branch stands by itself
  Slot d_dropped1_ = -1, d_dropped2_ = -1;  // only with dropout
  NormOutputs norm_outputs_;
  bool forward_again_;
};

}  // namespace lockstep
