// The feed-forward part of a block: down(silu(gate(x)) * up(x)), or down(gelu(up(x))).
//
// Gate and up are one projection, gate first. The gradient of their output overwrites the output itself.
#pragma once
#include "model/build.h"
#include "model/linear.h"
#include "model/names.h"

namespace lockstep {

class Mlp {
 public:
  Mlp(UnitLayout& layout, const Build& build, int unit, const BlockNames& names);

  void forward(Tensor y, ConstTensor x, const Call& call) const;
  void backward_input(Tensor dx, ConstTensor dy, const Call& call) const;
  void backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const;

 private:
  MlpKind kind_;
  Linear up_, down_;
  Slot inner_;   // what the projection gives; after backward-input, its gradient
  Slot active_;  // after the activation function
  Slot d_active_;
};

}  // namespace lockstep
