// The optimizers' updates of a flat range of parameters: AdamW (decoupled decay) and SGD with momentum.
//
// master, gradient and state are flat, of one length n. master is fp64, and then so is everything else, or fp32, or
// bf16; beside the latter two the gradient is fp32, bf16 or fp16, and so is `weight`, the copy that computes: when
// given, it receives the new master, rounded, in the same pass. A bf16 master computes itself and has no copy. The
// first `decayed` elements have weight decay (a unit keeps its matrices before its vectors, so one boundary is enough).
// Learning rate, step, bias corrections, gradient scale and the go-ahead come from `control` (step_control.h).
//
// The moments (m and v, or the momentum) are fp64 beside an fp64 master, and fp32 or bf16 beside the others. Arithmetic
// is in fp32, or fp64, and this update uses the new moments unrounded; what is kept in bf16 for the next is rounded by
// chance, keyed on the tensor, the element and the step: `rounding` says which element is at place `first` + i
// (stochastic_rounding.h). What that costs: a kept number is off by up to 2^-7 of itself, without bias. Rounding to
// nearest would cost more: it loses what is below 2^-9 of a number, so a master would no longer move once its updates
// are that small, and with beta2 = 0.999 v could never fall (by 2^-10 of itself at most in a step) and would rise only
// where g² is about three times as large.
//
// AdamW, as PyTorch's: p -= lr·decay·p; m = β1 m + (1-β1) g; v = β2 v + (1-β2) g²; p -= lr/(1-β1^t) · m /
// (sqrt(v)/sqrt(1-β2^t) + eps). SGD, as PyTorch's: g += decay·p; m = momentum·m + g; p -= lr·m (momentum none: p -=
// lr·g).
#pragma once
#include <cstdint>
#include <span>

#include "kernels/stochastic_rounding.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct AdamWArgs {
  Tensor master;
  Tensor weight;  // none: the master computes itself
  Tensor m;
  Tensor v;
  ConstTensor gradient;
  ConstTensor control;
  double beta1;
  double beta2;
  double eps;
  double decay;
  std::int64_t decayed;
  std::span<const RoundingRun> rounding = {};  // on the host; both only of bf16 state
  std::int64_t first = 0;
};

struct SgdArgs {
  Tensor master;
  Tensor weight;    // none: the master computes itself
  Tensor momentum;  // none: plain gradient descent
  ConstTensor gradient;
  ConstTensor control;
  double beta;  // of the momentum
  double decay;
  std::int64_t decayed;
  std::span<const RoundingRun> rounding = {};  // on the host; both only of bf16 state
  std::int64_t first = 0;
};

using AdamW = void(const AdamWArgs&, Stream&);
using Sgd = void(const SgdArgs&, Stream&);
AdamW adamw;
Sgd sgd;
namespace cpu {
AdamW adamw;
Sgd sgd;
}  // namespace cpu
namespace cuda {
AdamW adamw;
Sgd sgd;
}  // namespace cuda
namespace meta {
AdamW adamw;
Sgd sgd;
}  // namespace meta

}  // namespace lockstep
