#include "model/linear.h"

#include <algorithm>

#include "kernels/bias.h"
#include "kernels/matmul.h"

namespace lockstep {

namespace {

std::int64_t stacked(const std::vector<Part>& parts, std::int64_t Part::*which) {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.*which;
  return sum;
}

// The parts of one logical tensor here, which is (out, in) or (in, out), from output `at` of `all` on.
std::vector<Run> runs_of(const Linear::Options& o, const std::vector<Part>& parts, std::int64_t whole, std::int64_t at,
                         std::int64_t all) {
  std::vector<Run> runs;
  for (const Part& part : parts) {
    if (part.count > 0 && o.in.count > 0)
      runs.push_back(
          joined(o.in_out ? Run{.here = {at, part.count, all, o.in.count},
                                .there = {o.in.first * whole + part.first, part.count, whole, o.in.count}}
                          : Run{.here = {at * o.in.each, o.in.count, o.in.each, part.count},
                                .there = {part.first * o.in.all + o.in.first, o.in.count, o.in.all, part.count}}));
    at += part.each;
  }
  return runs;
}

}  // namespace

Linear::Linear(UnitLayout& layout, const Build& b, const LayerPlace& place, const Options& o)
    : in_out_(o.in_out), frozen_(b.frozen()) {
  LOCKSTEP_CHECK(!o.in_out || o.pieces.size() == 1,
                 "pieces stacked along out are not contiguous in an (in, out) weight");
  std::int64_t all = 0;
  for (const Stacked& piece : o.pieces) all += stacked(piece.parts, &Part::each);
  StoredParameter weight{.shape = o.in_out ? std::vector{o.in.each, all} : std::vector{all, o.in.each},
                         .init_std = o.init_std,
                         .frozen = frozen_};
  StoredParameter bias{.shape = {all}, .init = Init::zeros, .frozen = frozen_};
  Lora::Options adapters{.in = o.in, .targets = {}};
  const Options low{.in = Part::whole(std::max<std::int64_t>(b.how.lora.rank, 1)), .pieces = {}};
  std::int64_t at = 0;
  for (const Stacked& piece : o.pieces) {
    std::int64_t whole = 0;
    for (const Part& part : piece.parts) whole = std::max(whole, part.all);
    weight.pieces.push_back(
        {{piece.name + ".weight", o.in_out ? std::vector{o.in.all, whole} : std::vector{whole, o.in.all}},
         runs_of(o, piece.parts, whole, at, all),
         piece.counted,
         piece.partial_over});
    std::vector<Run> biases;
    for (std::int64_t here = at; const Part& part : piece.parts) {
      if (part.count > 0) biases.push_back(Run::flat(here, part.first, part.count));
      here += part.each;
    }
    // Where the inputs are cut, every rank has the bias, and the first of them answers for it.
    bias.pieces.push_back(
        {{piece.name + ".bias", {whole}}, biases, piece.counted && o.in.first == 0, piece.partial_over});
    const std::int64_t count = stacked(piece.parts, &Part::each);
    if (b.how.lora.adapts(piece.name))
      adapters.targets.push_back({.name = piece.name,
                                  .b = {{lora_b_name(piece.name), {whole, b.how.lora.rank}},
                                        runs_of(low, piece.parts, whole, 0, count),
                                        piece.counted,
                                        piece.partial_over},
                                  .begin = at,
                                  .count = count});
    at += count;
  }
  weight_ = layout.add(std::move(weight));
  if (o.bias) bias_ = layout.add(std::move(bias));
  if (!adapters.targets.empty()) lora_.emplace(layout, b, place, adapters);
  if (Fp8Products::fit(b, o.in.each, all))
    fp8_.emplace(b, place,
                 Fp8Products::Options{.in = o.in.each,
                                      .out = all,
                                      .in_out = o.in_out,
                                      .inputs_measured = o.inputs_measured,
                                      .gradients_measured = o.gradients_measured,
                                      .gradients_largest = o.gradients_largest,
                                      .inputs_turned_again = o.inputs_turned_again,
                                      .inputs_come = o.inputs_come,
                                      .gradients_come = o.gradients_come,
                                      .gradients_alike = o.gradients_alike});
}

void Linear::begin_forward(const ProductInput& x, const Call& call, bool again) const {
  if (fp8_) fp8_->begin_forward(x, call.weight(weight_), again, call);
}

void Linear::forward_rows(Tensor y, ConstTensor x, const Call& call, const Forward& how) const {
  const ConstTensor bias = bias_ < 0 || !how.with_bias ? ConstTensor{} : call.weight(bias_);
  if (fp8_)
    fp8_->forward(y, x, how.first, bias, how.addend, how.again, call);
  else
    matmul({.c = y, .a = x, .b = call.weight(weight_), .transpose_b = !in_out_, .bias = bias, .addend = how.addend},
           call.stream);
  if (lora_) lora_->forward(y, x, how.first, how.again, call);
}

void Linear::forward(Tensor y, const ProductInput& x, const Call& call, const Forward& how) const {
  begin_forward(x, call, how.again);
  forward_rows(y, x.x, call, how);
}

void Linear::begin_backward(ConstTensor dy, const Call& call) const {
  if (fp8_) fp8_->begin_backward(dy, call.weight(weight_), call);
}

void Linear::backward_input_rows(Tensor dx, ConstTensor dy, const Call& call, std::int64_t first) const {
  if (fp8_)
    fp8_->backward_input(dx, dy, first, call);
  else if (!dx.none())
    matmul({.c = dx, .a = dy, .b = call.weight(weight_), .transpose_b = in_out_}, call.stream);
  if (lora_) lora_->backward_input(dx, dy, first, call);
}

void Linear::backward_input(Tensor dx, ConstTensor dy, const Call& call) const {
  begin_backward(dy, call);
  backward_input_rows(dx, dy, call, 0);
}

void Linear::backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const {
  if (lora_) lora_->backward_weight(dy, x.x, call);
  if (frozen_) return;
  if (fp8_)
    fp8_->backward_weight(call.gradient(weight_), dy, x, call);
  else
    matmul({.c = call.gradient(weight_),
            .a = in_out_ ? x.x : dy,
            .b = in_out_ ? dy : x.x,
            .transpose_a = true,
            .accumulate = call.accumulate},
           call.stream);
  if (bias_ >= 0) bias_backward({.dbias = call.gradient(bias_), .dy = dy, .accumulate = call.accumulate}, call.stream);
}

}  // namespace lockstep
