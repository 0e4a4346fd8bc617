#include "model/fp8_products.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"

namespace lockstep {

// bf16 would keep what the projections of a block read, two bytes an element; in FP8 that is one byte, of attention's
// output one more, since its backward reads that. Whether a block's weights here take no more than the difference.
static bool weights_take_what_inputs_save(const Build& b) {
  const HeadSplit heads(b.spec.heads, b.spec.kv_heads, b.how.split);
  const std::int64_t C = b.spec.width, D = b.spec.head_width, F = b.how.split.part(b.spec.ffn_width).each;
  const std::int64_t q = heads.queries.each * D, qkv = q + 2 * heads.keys.each * D;
  const std::int64_t inner = (b.spec.mlp == MlpKind::swiglu ? 2 : 1) * F;
  const std::int64_t normed = b.how.split.sequence ? 0 : 2 * C;  // what is gathered is not kept turned
  return C * (qkv + q + inner + F) <= b.tokens() * (normed + F - q);
}

bool Fp8Products::keep_weights(const Build& b, int unit) {
  const BlockRecompute recompute = b.recompute(unit);
  return recompute.keeps_norm_outputs() && recompute.keeps_activation && !recompute.forward_again &&
         !b.offloads(unit) && weights_take_what_inputs_save(b);
}

Fp8Products::Fp8Products(const Build& b, const LayerPlace& at, const Options& options)
    : options_(options),
      tokens_(b.tokens()),
      keeps_inputs_(!options.inputs_come && keep_inputs(b, at.unit, options.in, options.out)),
      keeps_weights_(keep_weights(b, at.unit)) {
  const std::int64_t in = options.in, out = options.out, N = tokens_;
  const Half back = other(at.half);
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

  const auto scratch = [&](const char* what, std::int64_t bytes, Phase phase, Half half) {
    return b.slots.add_scratch(fmt::format("{} in fp8, half {}", what, static_cast<int>(half)), bytes, {at.unit, phase},
                               half);
  };
  const auto both_of = [&](Phase phase, Half half, std::int64_t columns) {
    return Scratch{scratch("rows", N * columns, phase, half), scratch("weights", in * out, phase, half)};
  };
  first_ = both_of(Phase::forward, at.half, in);
  // A second run of the forward ends before the block's last product.
  if (b.recompute(at.unit).forward_again && !(at.ends_branch && at.half == Half::second)) {
    const Scratch again = both_of(Phase::input, Half::first, in);
    b.slots.find_again(first_.rows, again.rows);
    b.slots.find_again(first_.weight, again.weight);
  }
  const bool projects_again = !b.recompute(at.unit).keeps_projections && !at.ends_branch;
  back_ = both_of(Phase::input, back, projects_again ? std::max(in, out) : out);
  dy8_turned_ = b.slots.add(spec(", gradients in fp8 turned", DType::f8e5m2, {out, N},
                                 options.gradients_come ? Phase::weight : Phase::input, Phase::weight));
  x8_turned_ = keeps_inputs_
                   ? b.add(spec(", inputs in fp8 turned", DType::f8e4m3, {in, N}, Phase::forward, Phase::weight))
               : options.inputs_turned_again
                   ? b.slots.add(spec(", inputs in fp8 turned", DType::f8e4m3, {in, N}, Phase::input, Phase::weight))
                   : scratch("rows", in * N, Phase::weight, back);
  if (keeps_weights_)
    weight8_turned_ =
        b.slots.add(spec(", weights in fp8 turned", DType::f8e4m3, {in, out}, Phase::forward, Phase::input));
}

Tensor Fp8Products::rows8(Slot scratch, bool gradients, const Call& call) const {
  const Tensor bytes = call.at[scratch];
  return Tensor(bytes.raw(), gradients ? DType::f8e5m2 : DType::f8e4m3, bytes.device(),
                {tokens_, gradients ? options_.out : options_.in});
}

// (out, in) as the forward reads it; turned, as the input phase does.
Tensor Fp8Products::weight8(Slot scratch, bool turned, const Call& call) const {
  const Tensor bytes = call.at[scratch];
  const std::int64_t in = options_.in, out = options_.out;
  return Tensor(bytes.raw(), DType::f8e4m3, bytes.device(), turned ? Shape{in, out} : Shape{out, in});
}

Tensor Fp8Products::weight8_back(const Call& call) const {
  return keeps_weights_ ? call.at[weight8_turned_] : weight8(back_.weight, true, call);
}

Tensor Fp8Products::gradients_amax(const Call& call) const {
  const Tensor given = call.at[options_.gradients_largest];
  return given ? given : largest(gradient_, call);
}

void Fp8Products::find_largest(Tensor largest, ConstTensor x, const Call& call) const {
  if (x.elements() == 0) return fill({.y = largest, .value = 0}, call.stream);  // more ranks than rows
  amax({.amax = largest, .x = x}, call.stream);
}

void Fp8Products::quantize_inputs(Tensor q, Tensor turned, const ProductInput& x, const Call& call) const {
  quantize({.q = q, .turned = turned, .scale = call.at[x_.scale], .x = x.x, .amax = largest(x_, call), .norm = x.norm},
           call.stream);
}

void Fp8Products::quantize_weights(Tensor w8, Tensor w8_turned, ConstTensor weight, const Call& call) const {
  quantize({.q = options_.in_out ? w8_turned : w8,
            .turned = options_.in_out ? w8 : w8_turned,
            .scale = call.at[weight_.scale],
            .x = weight,
            .amax = largest(weight_, call)},
           call.stream);
}

void Fp8Products::quantize_gradients(Tensor q, Tensor turned, ConstTensor dy, const Call& call) const {
  quantize({.q = q, .turned = turned, .scale = call.at[gradient_.scale], .x = dy, .amax = gradients_amax(call)},
           call.stream);
}

void Fp8Products::begin_forward(const ProductInput& x, ConstTensor weight, bool again, const Call& call) const {
  if (!again) {  // else they are there
    if (!options_.inputs_measured) find_largest(largest(x_, call), x.x, call);
    amax({.amax = largest(weight_, call), .x = weight}, call.stream);
    if (call.split().size > 1) call.tensor->ranks().all_reduce(call.at[x_.amax], {Reduction::max})->wait();
  }
  const Scratch& scratch = again ? back_ : first_;
  const bool turns = again ? options_.inputs_turned_again : keeps_inputs_ && call.batch.training;
  const bool keeps_weight = keeps_weights_ && call.batch.training;
  if (!options_.inputs_come)
    quantize_inputs(rows8(scratch.rows, false, call), turns ? inputs_turned(call) : Tensor{}, x, call);
  quantize_weights(weight8(scratch.weight, false, call), keeps_weight ? call.at[weight8_turned_] : Tensor{}, weight,
                   call);
}

void Fp8Products::forward(Tensor y, ConstTensor x, std::int64_t first, ConstTensor bias, ConstTensor addend, bool again,
                          const Call& call) const {
  const Scratch& scratch = again ? back_ : first_;
  const Tensor x8 = rows8(scratch.rows, false, call).slice(0, first, y.dim(0));
  if (options_.inputs_come) quantize_inputs(x8, {}, x, call);
  matmul({.c = y,
          .a = x8,
          .b = weight8(scratch.weight, false, call),
          .transpose_b = true,
          .bias = bias,
          .addend = addend,
          .scale_a = call.at[x_.scale],
          .scale_b = call.at[weight_.scale],
          .fast_sums = true},
         call.stream);
}

void Fp8Products::share_gradients_amax(const Call& call) const {
  if (call.split().size > 1 && !options_.gradients_alike)
    call.tensor->ranks().all_reduce(gradients_amax(call), {Reduction::max})->wait();
}

Fp8Products::Gradients Fp8Products::begin_gradients(const Call& call) const {
  share_gradients_amax(call);
  return {.q = rows8(back_.rows, true, call),
          .turned = call.at[dy8_turned_],
          .scale = call.at[gradient_.scale],
          .amax = gradients_amax(call)};
}

void Fp8Products::begin_backward(ConstTensor dy, ConstTensor weight, const Call& call) const {
  if (dy) {
    const bool measured = options_.gradients_measured || call.at[options_.gradients_largest];
    if (!measured) find_largest(gradients_amax(call), dy, call);
    share_gradients_amax(call);
    if (!options_.gradients_come) quantize_gradients(rows8(back_.rows, true, call), call.at[dy8_turned_], dy, call);
  }
  if (!keeps_weights_) quantize_weights({}, weight8_back(call), weight, call);
}

void Fp8Products::backward_input(Tensor dx, ConstTensor dy, std::int64_t first, const Call& call) const {
  const Tensor dy8 = rows8(back_.rows, true, call).slice(0, first, dx.dim(0));
  if (options_.gradients_come) quantize_gradients(dy8, {}, dy, call);
  matmul({.c = dx,
          .a = dy8,
          .b = weight8_back(call),
          .transpose_b = true,
          .scale_a = call.at[gradient_.scale],
          .scale_b = call.at[weight_.scale]},
         call.stream);
}

Tensor Fp8Products::inputs_turned(const Call& call) const {
  const Tensor bytes = call.at[x8_turned_];
  return Tensor(bytes.raw(), DType::f8e4m3, bytes.device(), {options_.in, tokens_});
}

void Fp8Products::turn_inputs(const ProductInput& x, const Call& call) const {
  if (!keeps_inputs_ && options_.inputs_turned_again) quantize_inputs({}, inputs_turned(call), x, call);
}

void Fp8Products::backward_weight(Tensor gradient, ConstTensor dy, const ProductInput& x, const Call& call) const {
  const Tensor x8 = inputs_turned(call), dy8 = call.at[dy8_turned_];
  if (options_.gradients_come) quantize_gradients({}, dy8, dy, call);
  if (!keeps_inputs_ && !options_.inputs_turned_again) quantize_inputs({}, x8, x, call);
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
