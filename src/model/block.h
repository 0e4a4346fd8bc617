// One transformer block: mid = x + attention(norm1(x)); y = mid + mlp(norm2(mid)).
//
// x, y and their gradients are the slots between units; y and dx are this block's to write, x and dy its to read.
// Outputs of the norms that are not kept (Recompute) are made again where backward first needs them: in the input phase
// for projections that are computed again, else in the weight phase.
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
  struct Normed {
    ConstTensor first, second;
  };
  // The norms' outputs for backward, made again if this is the phase for it.
  Normed normed_again(Phase phase, const Call& call) const;

  BlockNames names_;
  Between between_;
  // In the order of the forward, which is the order in which slots are declared.
  Norm norm1_;
  Slot d_normed1_, normed1_, normed1_again_;
  Attention attention_;
  Slot d_mid_, mid_;
  Norm norm2_;
  Slot d_normed2_, normed2_, normed2_again_;
  Mlp mlp_;
  Slot branch_;
  DropoutSite attention_dropout_, mlp_dropout_;
  Slot d_dropped1_ = -1, d_dropped2_ = -1;  // only with dropout
  Recompute recompute_;
};

}  // namespace lockstep
