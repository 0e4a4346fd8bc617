#include "model/fp8_products.h"

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"

namespace lockstep {

Fp8Products::Fp8Products(const Build& b, const LayerPlace& at, const Options& options)
    : options_(options), keeps_inputs_(!options.inputs_come && keep_inputs(b, at.unit, options.in, options.out)) {
  const std::int64_t in = options.in, out = options.out;
  const Half back = other(at.half);
  const std::int64_t N = b.tokens();
  const std::string name = at.name;
  const auto spec = [&](const char* what, DType dtype, const Shape& shape, Phase born, Phase last) {
    const Half begin = born == Phase::forward ? at.half : back, end = last == Phase::forward ? at.half : back;
    return SlotSpec{name + what, dtype, shape, {at.unit, born}, {at.unit, last}, begin, end};
  };
  // One life, also where the forward runs twice: the second run does not come to every projection, and to the others it
  // gives the same values again.
  const auto number = [&](const char* what, Phase born, Phase last, std::int64_t count = 1) {
    return b.slots.add(spec(what, DType::f32, {count}, born, last));
  };
  const Slot both = number(", inputs' and weights' largest", Phase::forward, Phase::weight, 2);
  x_ = {both, 0, number(", inputs' scale", Phase::forward, Phase::weight)};
  weight_ = {both, 1, number(", weights' scale", Phase::forward, Phase::input)};
  gradient_ = {number(", gradients' largest", Phase::input, Phase::weight), 0,
               number(", gradients' scale", Phase::input, Phase::weight)};

  // A second run of the forward ends before the block's last product.
  const auto within = [&](const char* what, const Shape& shape, Phase phase) {
    SlotSpec slot = spec(what, DType::f8e4m3, shape, phase, phase);
    const bool runs_again = phase == Phase::forward && !(at.ends_branch && at.half == Half::second);
    return runs_again ? b.add(std::move(slot)) : b.slots.add(std::move(slot));
  };
  first_ = {within(", inputs in fp8", {N, in}, Phase::forward), within(", weights in fp8", {out, in}, Phase::forward)};
  again_ = first_;
  if (!b.recompute(at.unit).keeps_projections && !at.ends_branch)
    again_ = {within(", inputs in fp8 again", {N, in}, Phase::input),
              within(", weights in fp8 again", {out, in}, Phase::input)};
  dy8_ = b.slots.add(spec(", gradients in fp8", DType::f8e5m2, {N, out}, Phase::input, Phase::input));
  dy8_turned_ = b.slots.add(spec(", gradients in fp8 turned", DType::f8e5m2, {out, N},
                                 options.gradients_come ? Phase::weight : Phase::input, Phase::weight));
  weight8_back_ = within(", weights in fp8 turned", {in, out}, Phase::input);
  const char* turned = ", inputs in fp8 turned";
  x8_turned_ = keeps_inputs_ ? b.add(spec(turned, DType::f8e4m3, {in, N}, Phase::forward, Phase::weight))
                             : within(turned, {in, N}, Phase::weight);
}

void Fp8Products::find_largest(Tensor largest, ConstTensor x, const Call& call) const {
  if (x.elements() == 0) return fill({.y = largest, .value = 0}, call.stream);  // more ranks than rows
  amax({.amax = largest, .x = x}, call.stream);
}

void Fp8Products::quantize_to(Tensor q, Tensor turned, const Scaling& s, ConstTensor x, const Call& call) const {
  quantize({.q = q, .turned = turned, .scale = call.at[s.scale], .x = x, .amax = largest(s, call)}, call.stream);
}

void Fp8Products::begin_forward(ConstTensor x, ConstTensor weight, bool again, const Call& call) const {
  if (!again) {  // else they are there
    if (!options_.inputs_measured) find_largest(largest(x_, call), x, call);
    amax({.amax = largest(weight_, call), .x = weight}, call.stream);
    if (call.split().size > 1) call.tensor->ranks().all_reduce(call.at[x_.amax], {Reduction::max})->wait();
  }
  const Forward& slots = again ? again_ : first_;
  const Tensor &x8 = call.at[slots.x], &weight8 = call.at[slots.weight];
  const bool keeps = keeps_inputs_ && call.batch.training;
  if (!options_.inputs_come) quantize_to(x8, keeps ? call.at[x8_turned_] : Tensor{}, x_, x, call);
  quantize_to(options_.in_out ? Tensor{} : weight8, options_.in_out ? weight8 : Tensor{}, weight_, weight, call);
}

void Fp8Products::forward(Tensor y, ConstTensor x, std::int64_t first, ConstTensor bias, ConstTensor addend, bool again,
                          const Call& call) const {
  const Forward& slots = again ? again_ : first_;
  const Tensor x8 = call.at[slots.x].slice(0, first, y.dim(0));
  if (options_.inputs_come) quantize_to(x8, {}, x_, x, call);
  matmul({.c = y,
          .a = x8,
          .b = call.at[slots.weight],
          .transpose_b = true,
          .bias = bias,
          .addend = addend,
          .scale_a = call.at[x_.scale],
          .scale_b = call.at[weight_.scale],
          .fast_sums = true},
         call.stream);
}

void Fp8Products::begin_backward(ConstTensor dy, ConstTensor weight, const Call& call) const {
  if (!options_.gradients_measured) find_largest(largest(gradient_, call), dy, call);
  if (call.split().size > 1 && !options_.gradients_alike)
    call.tensor->ranks().all_reduce(largest(gradient_, call), {Reduction::max})->wait();
  if (!options_.gradients_come) quantize_to(call.at[dy8_], call.at[dy8_turned_], gradient_, dy, call);
  const Tensor& weight8 = call.at[weight8_back_];
  quantize_to(options_.in_out ? weight8 : Tensor{}, options_.in_out ? Tensor{} : weight8, weight_, weight, call);
}

void Fp8Products::backward_input(Tensor dx, ConstTensor dy, std::int64_t first, const Call& call) const {
  const Tensor dy8 = call.at[dy8_].slice(0, first, dx.dim(0));
  if (options_.gradients_come) quantize_to(dy8, {}, gradient_, dy, call);
  matmul({.c = dx,
          .a = dy8,
          .b = call.at[weight8_back_],
          .transpose_b = true,
          .scale_a = call.at[gradient_.scale],
          .scale_b = call.at[weight_.scale]},
         call.stream);
}

void Fp8Products::backward_weight(Tensor gradient, ConstTensor dy, ConstTensor x, const Call& call) const {
  const Tensor &x8 = call.at[x8_turned_], &dy8 = call.at[dy8_turned_];
  if (options_.gradients_come) quantize_to({}, dy8, gradient_, dy, call);
  if (!keeps_inputs_) quantize_to({}, x8, x_, x, call);
  matmul({.c = gradient,
          .a = options_.in_out ? x8 : dy8,
          .b = options_.in_out ? dy8 : x8,
          .transpose_b = true,
          .accumulate = call.accumulate,
          .scale_a = call.at[options_.in_out ? x_.scale : gradient_.scale],
          .scale_b = call.at[options_.in_out ? gradient_.scale : x_.scale]},
         call.stream);
}

}  // namespace lockstep
