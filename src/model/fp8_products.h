// The three products of a projection in FP8: y = x · Wᵀ and dW = dyᵀ · x of E4M3's x, dy and dx = dy · W of E5M2's dy.
//
// Per-tensor current scaling (kernels/quantize.h): each tensor is read once for its largest magnitude and once to be
// quantized. GPUs multiply only operands whose rows run along the sum, so a product and the next one need the same
// tensor in two forms, as it is and turned:
//
//   phase      reads                    writes                          multiplies
//   forward    x twice, W twice         x8, W8                          y  = x8 · W8ᵀ      (fast sums)
//   input      dy twice, W              dy8 and dy8 turned, W8 turned   dx = dy8 · W8
//   weight     x                        x8 turned                       dW = dy8ᵀ · x8, added in the gradient's type
//
// Largest magnitudes and scales stay from the forward on (a few bytes); the gradient turned, from the input phase to
// the weight phase; everything else lives while its product runs. In a block that recomputes nothing the forward turns
// x too, and that is kept for the weight phase in the place of x itself: half the bytes, and x is not read again. What
// is recomputed is equal to the bit, so it is quantized to the same bits. Weights are quantized anew for every
// micro-batch, from what computes in bf16 elsewhere (embedding, norms, attention, head), so that gathered and offloaded
// weights need nothing of their own.
//
// A projection whose tokens, inputs or outputs are no multiple of 16 has none of this: its products are in bf16.
#pragma once
#include "model/build.h"
#include "spec/model/fp8_fit.h"

namespace lockstep {

class Fp8Products {
 public:
  // Whether a projection of the model to be built has them.
  static bool fit(const Build& build, std::int64_t in, std::int64_t out) {
    return build.how.fp8 && fits_fp8(build.tokens(), in, out);
  }
  // Whether x itself is read by nobody after the forward: that it is kept turned.
  static bool keep_inputs(const Build& build, int unit, std::int64_t in, std::int64_t out) {
    const BlockRecompute recompute = build.recompute(unit);
    return fit(build, in, out) && recompute.keeps_norm_outputs() && recompute.keeps_activation;
  }
  struct Options {
    std::int64_t in, out;
    bool in_out = false;  // the weight is (in, out), not (out, in)
    // Who writes x, or dy, writes its largest magnitude too (kernels/swiglu.h), and a pass is saved.
    bool inputs_measured = false, gradients_measured = false;
  };
  Fp8Products(const Build& build, const LayerPlace& place, const Options& options);

  bool keeps_inputs() const { return keeps_inputs_; }
  Tensor inputs_amax(const Call& call) const { return call.at[x_.amax]; }
  Tensor gradients_amax(const Call& call) const { return call.at[gradient_.amax]; }

  void forward(Tensor y, ConstTensor x, ConstTensor weight, ConstTensor bias, ConstTensor addend, bool again,
               const Call& call) const;
  void backward_input(Tensor dx, ConstTensor dy, ConstTensor weight, const Call& call) const;
  // Of the dy that backward_input was given.
  void backward_weight(Tensor gradient, ConstTensor x, const Call& call) const;

 private:
  struct Scaling {
    Slot amax, scale;
  };
  struct Forward {
    Slot x, weight;
  };
  void quantize_to(Tensor q, Tensor turned, const Scaling& scaling, ConstTensor x, const Call& call) const;

  Options options_;
  bool keeps_inputs_;
  Scaling x_, weight_, gradient_;
  Forward first_, again_;  // in the forward, and in the input phase where the projection is recomputed
  Slot dy8_, dy8_turned_, weight8_back_, x8_turned_;
};

}  // namespace lockstep
