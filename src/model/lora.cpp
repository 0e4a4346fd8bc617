#include "model/lora.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/build.h"

namespace lockstep {

Lora::Lora(UnitLayout& layout, const Build& b, const LayerPlace& place, const Options& o)
    : rank_(b.how.lora.rank), scale_(b.how.lora.scale()) {
  const auto count = static_cast<std::int64_t>(o.targets.size());
  const bool cut = o.in.each != o.in.all;
  // As deep as PEFT's, whose A is uniform with this deviation.
  StoredParameter a{.shape = {count * rank_, o.in.each}, .init_std = 1 / std::sqrt(3 * static_cast<double>(o.in.all))};
  for (std::int64_t i = 0; i < count; ++i) {
    const LogicalTensor whole{lora_a_name(o.targets[static_cast<std::size_t>(i)].name), {rank_, o.in.all}};
    ParameterPiece piece = b.on_all_ranks(whole, true);
    if (cut) {
      piece = ParameterPiece{whole};
      piece.runs.emplace();
      if (o.in.count > 0)
        piece.runs->push_back(joined(Run{.here = {i * rank_ * o.in.each, o.in.count, o.in.each, rank_},
                                         .there = {o.in.first, o.in.count, o.in.all, rank_}}));
    }
    a.pieces.push_back(std::move(piece));
  }
  a_ = layout.add(std::move(a));
  for (const Target& target : o.targets) {
    StoredParameter one{.shape = {target.count, rank_}, .pieces = {target.b}, .init = Init::zeros};
    if (cut) one.pieces = {b.on_all_ranks({target.b.name, target.b.shape}, true)};
    targets_.push_back({target.begin, target.count, layout.add(std::move(one))});
  }
  const bool keeps = !b.recompute(place.unit).forward_again;
  const std::string name = std::string(place.name) + ", low rank";
  low_ = b.rows(place.unit, name, count * rank_, Phase::forward, keeps ? Phase::weight : Phase::forward, place.half);
  low_again_ = keeps ? low_ : b.rows(place.unit, name + " for weights", count * rank_, Phase::weight, Phase::weight);
  d_low_ = b.rows(place.unit, name + ", gradient", count * rank_, Phase::input, Phase::weight, other(place.half));
}

void Lora::scale_by_alpha(const Tensor& low, const Call& call) const {
  if (scale_ != 1) scale({.y = low, .x = low, .factor = scale_}, call.stream);
}

Tensor Lora::make_low(const Tensor& low, const ConstTensor& x, const Call& call) const {
  matmul({.c = low, .a = x, .b = call.weight(a_), .transpose_b = true}, call.stream);
  scale_by_alpha(low, call);
  return low;
}

void Lora::forward(const Tensor& y, const ConstTensor& x, std::int64_t first, bool again, const Call& call) const {
  const Tensor low = call.at[low_].slice(0, first, x.dim(0));
  if (!again) make_low(low, x, call);
  for (std::size_t i = 0; i < targets_.size(); ++i)
    matmul({.c = y.slice(1, targets_[i].begin, targets_[i].count),
            .a = low.slice(1, static_cast<std::int64_t>(i) * rank_, rank_),
            .b = call.weight(targets_[i].b),
            .transpose_b = true,
            .accumulate = true},
           call.stream);
}

void Lora::backward_input(const Tensor& dx, const ConstTensor& dy, std::int64_t first, const Call& call) const {
  const Tensor low = call.at[d_low_].slice(0, first, dy.dim(0));
  for (std::size_t i = 0; i < targets_.size(); ++i)
    matmul({.c = low.slice(1, static_cast<std::int64_t>(i) * rank_, rank_),
            .a = dy.slice(1, targets_[i].begin, targets_[i].count),
            .b = call.weight(targets_[i].b)},
           call.stream);
  scale_by_alpha(low, call);
  if (!dx.none()) matmul({.c = dx, .a = low, .b = call.weight(a_), .accumulate = true}, call.stream);
}

void Lora::backward_weight(const ConstTensor& dy, const ConstTensor& x, const Call& call) const {
  const Tensor low = low_again_ == low_ ? call.at[low_] : make_low(call.at[low_again_], x, call);
  for (std::size_t i = 0; i < targets_.size(); ++i)
    matmul({.c = call.gradient(targets_[i].b),
            .a = dy.slice(1, targets_[i].begin, targets_[i].count),
            .b = low.slice(1, static_cast<std::int64_t>(i) * rank_, rank_),
            .transpose_a = true,
            .accumulate = call.accumulate},
           call.stream);
  matmul({.c = call.gradient(a_), .a = call.at[d_low_], .b = x, .transpose_a = true, .accumulate = call.accumulate},
         call.stream);
}

}  // namespace lockstep
