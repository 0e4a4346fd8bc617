// One transformer block: mid = x + attention(norm1(x)); y = mid + mlp(norm2(mid)).
//
// x, y and their gradients are the slots between units; y and dx are this block's to write, x and dy its to read.
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
  BlockNames names_;
  Between between_;
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  Mlp mlp_;
  DropoutSite attention_dropout_, mlp_dropout_;
  Slot normed1_, normed2_, mid_, branch_;
  Slot d_normed1_, d_normed2_, d_mid_;
  Slot d_dropped1_ = -1, d_dropped2_ = -1;  // only with dropout
};

}  // namespace lockstep
