#include "model/linear.h"

#include "kernels/bias.h"
#include "kernels/matmul.h"

namespace lockstep {

Linear::Linear(UnitLayout& layout, const Options& o) : in_out_(o.in_out) {
  LOCKSTEP_CHECK(!o.in_out || o.pieces.size() == 1,
                 "pieces stacked along out are not contiguous in an (in, out) weight");
  StoredParameter weight{.shape = o.in_out ? std::vector{o.in, o.out} : std::vector{o.out, o.in},
                         .init_std = o.init_std};
  StoredParameter bias{.shape = {o.out}, .init = Init::zeros};
  for (const auto& [name, out] : o.pieces) {
    weight.pieces.push_back({name + ".weight", o.in_out ? std::vector{o.in, out} : std::vector{out, o.in}});
    bias.pieces.push_back({name + ".bias", {out}});
  }
  weight_ = layout.add(std::move(weight));
  if (o.bias) bias_ = layout.add(std::move(bias));
}

void Linear::forward(Tensor y, ConstTensor x, const Call& call, ConstTensor addend) const {
  matmul({.c = y,
          .a = x,
          .b = call.weight(weight_),
          .transpose_b = !in_out_,
          .bias = bias_ < 0 ? ConstTensor{} : call.weight(bias_),
          .addend = addend},
         call.stream);
}

void Linear::backward_input(Tensor dx, ConstTensor dy, const Call& call) const {
  matmul({.c = dx, .a = dy, .b = call.weight(weight_), .transpose_b = in_out_}, call.stream);
}

void Linear::backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const {
  matmul({.c = call.gradient(weight_),
          .a = in_out_ ? x : dy,
          .b = in_out_ ? dy : x,
          .transpose_a = true,
          .accumulate = call.accumulate},
         call.stream);
  if (bias_ >= 0) bias_backward({.dbias = call.gradient(bias_), .dy = dy, .accumulate = call.accumulate}, call.stream);
}

}  // namespace lockstep
