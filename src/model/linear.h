// A projection: y = x · weightᵀ (+ bias), the weight stored (out, in), or (in, out) as GPT-2's Conv1D stores it.
//
// x (N, in), y (N, out). Nothing is owned: indices of parameters, and the three products of a projection and its
// gradients, which may be of FP8 (model/fp8_products.h). With LoRA its parameters are frozen, and adapters beside it
// are trained (model/lora.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/fp8_products.h"
#include "model/lora.h"
#include "model/unit.h"
#include "spec/layout/tensor_split.h"

namespace lockstep {

class Linear {
 public:
  // A logical tensor, or, where ranks cut layers between them, those of its outputs that are here.
  struct Stacked {
    std::string name;         // without ".weight"/".bias"
    std::vector<Part> parts;  // of its outputs, one behind the other
    bool counted = true;      // as of ParameterPiece
    std::int64_t partial_over = 1;
  };
  struct Options {
    Part in;
    bool in_out = false;  // the weight is stored (in, out)
    double init_std = 0.02;
    std::vector<Stacked> pieces;  // along `out`
    bool bias = false;
    // Where products are of FP8: as of Fp8Products.
    bool inputs_measured = false, gradients_measured = false;
    Slot gradients_largest = -1;
    bool inputs_turned_again = false;
    bool inputs_come = false, gradients_come = false, gradients_alike = false;
  };

  Linear(UnitLayout& layout, const Build& build, const LayerPlace& place, const Options& options);

  // y = … + addend; the bias is left out where another rank adds it. In the forward of the unit, or `again`: within its
  // input phase, where what it gave was not kept. x and y may be rows from `first` on of all there are.
  struct Forward {
    ConstTensor addend = {};
    bool with_bias = true;
    bool again = false;
    std::int64_t first = 0;
  };
  void forward(Tensor y, const ProductInput& x, const Call& call, const Forward& how) const;
  void forward(Tensor y, const ProductInput& x, const Call& call) const { forward(y, x, call, Forward{}); }
  // dx none: nobody wants it, and what the weight phase needs is made alone.
  void backward_input(Tensor dx, ConstTensor dy, const Call& call) const;
  // The same in pieces of rows, after a call that is given what this rank has of x, or of dy.
  void begin_forward(const ProductInput& x, const Call& call, bool again = false) const;
  void forward_rows(Tensor y, ConstTensor x, const Call& call, const Forward& how) const;
  void begin_backward(ConstTensor dy, const Call& call) const;
  void backward_input_rows(Tensor dx, ConstTensor dy, const Call& call, std::int64_t first) const;
  bool trains() const { return !frozen_ || lora_; }
  // Its backward does not read x, which the forward has kept in another form.
  bool keeps_inputs() const { return fp8_ && fp8_->keeps_inputs(); }
  // Where the largest magnitudes of x and of dy belong; none where nobody needs them.
  Tensor inputs_amax(const Call& call) const { return fp8_ ? fp8_->inputs_amax(call) : Tensor{}; }
  Tensor gradients_amax(const Call& call) const { return fp8_ ? fp8_->gradients_amax(call) : Tensor{}; }
  // Of FP8 products alone: dy is written by whoever makes it to these, and is none in the calls above and below.
  Fp8Products::Gradients begin_gradients(const Call& call) const { return fp8_->begin_gradients(call); }
  Tensor inputs_turned(const Call& call) const { return fp8_->inputs_turned(call); }
  // In the input phase, unless the forward runs there again.
  void turn_inputs(const ProductInput& x, const Call& call) const {
    if (fp8_) fp8_->turn_inputs(x, call);
  }
  void backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const;

 private:
  bool in_out_, frozen_;
  std::optional<Lora> lora_;        // none: no adapter
  std::optional<Fp8Products> fp8_;  // none: in the model's type
  int weight_;
  int bias_ = -1;
};

}  // namespace lockstep
