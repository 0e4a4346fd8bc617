// The norm of a family, RMSNorm or LayerNorm, with its row statistics and the residual that is added before it.
#pragma once
#include <string>

#include "kernels/quantize.h"
#include "model/build.h"
#include "model/held_gradient.h"

namespace lockstep {

class Norm {
 public:
  // Over this rank's own tokens; statistics live from the unit's forward to its weight phase, or, where that comes
  // later (`holds`), to its input phase, which then sums the weight's gradient too: what the weight phase is given is
  // not read. Where norms are frozen there is nothing to sum.
  Norm(UnitLayout& layout, const Build& build, int unit, const std::string& name, bool holds = false);

  // amax, when given, receives the largest magnitude of y, and of dx below (kernels/quantize.h).
  void forward(Tensor y, ConstTensor x, const Call& call, Tensor amax = {}) const;
  // sum = x + residual, y = norm(sum).
  void forward(Tensor y, Tensor sum, ConstTensor x, ConstTensor residual, const Call& call, Tensor amax = {}) const;
  // dx = dresidual + the norm's gradient; x is what was normalised (the sum). `again`, when given, receives what
  // forward gave.
  void backward_input(Tensor dx, ConstTensor dy, ConstTensor x, ConstTensor dresidual, const Call& call,
                      Tensor again = {}, Tensor amax = {}) const;
  void backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const;
  // By which quantize() makes what forward gave of x again; forward's y may then be none.
  QuantizedNorm quantized(const Call& call) const;

 private:
  struct WeightGradients {
    Tensor weight, bias;
  };
  void sum_weights(const WeightGradients& to, ConstTensor dy, ConstTensor x, bool accumulate, const Call& call) const;

  NormKind kind_;
  double eps_;
  bool frozen_;
  int weight_;
  int bias_ = -1;
  Slot rstd_;
  Slot mean_ = -1;
  HeldGradient held_weight_, held_bias_;
};

}  // namespace lockstep
