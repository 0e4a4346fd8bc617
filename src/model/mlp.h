// The feed-forward part of a block: down(silu(gate(x)) * up(x)), or down(gelu(up(x))).
//
// Gate and up are one projection, gate first. The gradient of their output overwrites the output itself, or, where all
// that reads it is a product in FP8, is written in FP8 alone. What the forward does not keep (model/recompute.h) the
// backward-input recomputes, in slots of its own.
#pragma once
#include "model/build.h"
#include "model/names.h"
#include "model/split_linear.h"

namespace lockstep {

class Mlp {
 public:
  // dy_amax: where the largest magnitude of dy is, if whoever writes dy finds it.
  Mlp(UnitLayout& layout, const Build& build, int unit, const BlockNames& names, Slot dy_amax = -1);
  // Outputs of its first projection on this rank.
  static std::int64_t inner(const Build& build);
  // Whether the last projection's products are of FP8.
  static bool ends_in_fp8(const Build& build) {
    return Fp8Products::fit(build, build.how.split.part(build.spec.ffn_width).each, build.spec.width);
  }
  Tensor inputs_amax(const Call& call) const { return up_.inputs_amax(call); }  // x's, for whoever writes it

  void forward(Tensor y, const ProductInput& x, const Call& call, ConstTensor residual = {}) const;  // y = … + residual
  // The forward's second run: what backward needs of it.
  void recompute(const ProductInput& x, const Call& call) const { up_.forward(call.at[first_.inner], x, call); }
  // x is needed where the projection is recomputed. dx none: nobody wants it.
  void backward_input(Tensor dx, ConstTensor dy, const ProductInput& x, const Call& call) const;
  void backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const;

 private:
  // Whether SwiGLU's backward writes what it gives in FP8 alone.
  static bool gives_fp8(const Build& build);
  void activate_backward(const Tensor& inner, const Tensor& d_active, const Call& call) const;

  MlpKind kind_;
  bool gives_fp8_, keeps_active_;
  Part width_;  // this rank's part of the feed-forward width
  ColumnLinear up_;
  RowLinear down_;
  struct Made {
    Slot inner;   // what the projection gives; after backward-input, its gradient
    Slot active;  // after the activation function
  };
  Made first_, again_;  // in the forward and for the backward: the same where it is kept
  Slot d_active_;
};

}  // namespace lockstep
