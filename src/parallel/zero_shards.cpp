#include "parallel/zero_shards.h"

#include "kernels/elementwise.h"
#include "kernels/step_control.h"
#include "optim/rounding_map.h"

namespace lockstep {

namespace {
DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::f64;
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
  }
  LOCKSTEP_CHECK(false, "precision {}", static_cast<int>(precision));
}
}  // namespace

StorageTypes storage_types(const PrecisionSpec& precision) {
  const DType compute = compute_type(precision.compute), full = accumulator_of(compute);
  LOCKSTEP_CHECK(precision.gradients == StateType::full || compute == DType::bf16, "bf16 gradients of {} weights",
                 name_of(compute));
  LOCKSTEP_CHECK(precision.moments == StateType::full || full == DType::f32, "bf16 moments of {} masters",
                 name_of(full));
  LOCKSTEP_CHECK(precision.master == StateType::full || compute == DType::bf16, "bf16 masters of {} weights",
                 name_of(compute));
  return {.compute = compute,
          .gradient = precision.gradients == StateType::full ? full : DType::bf16,
          .master = precision.master == StateType::full ? full : DType::bf16,
          .moments = precision.moments == StateType::full ? full : DType::bf16};
}

ZeroShard::ZeroShard(const UnitLayout& layout, const Options& options, Memory& memory, Stream& stream)
    : layout_(layout),
      types_(options.types),
      shard_(options.shard),
      whole_(options.whole_weights),
      offloads_(options.state_in != nullptr) {
  Memory& state_memory = offloads_ ? *options.state_in : memory;
  const std::string& unit = layout.name();
  const std::int64_t first = shard_.begin(layout.owned()), part = part_elements();
  const bool rounds = types_.master == DType::bf16 || types_.moments == DType::bf16;
  if (options.updates)
    optimizer_.emplace(options.optimizer,
                       FlatOptimizer::Range{.elements = part,
                                            .decayed = std::clamp<std::int64_t>(layout.decayed() - first, 0, part),
                                            .moments = types_.moments,
                                            .first = first,
                                            .rounding = rounds ? rounding_map(layout) : std::vector<RoundingRun>{}},
                       state_memory, unit, stream);
  const std::int64_t held = whole_ ? shard_.padded(layout.owned()) : part;
  weights_ = (options.weights_in ? *options.weights_in : memory)
                 .allocate(held * size_of(types_.compute), Tag::parameter, unit);
  if (options.updates && types_.compute != types_.master)
    masters_ = state_memory.allocate(part * size_of(types_.master), Tag::optimizer, unit);
  fill({.y = flat_weight(), .value = 0}, stream);
  if (masters_.memory()) clear(own_master(), stream);
}

Tensor ZeroShard::weight(int parameter) const {
  LOCKSTEP_CHECK(whole_, "the weights of {} are not whole", layout_.name());
  return view(weights_, types_.compute, Shape(std::span(layout_.parameters()[parameter].shape)),
              layout_.offset(parameter));
}

Tensor ZeroShard::flat_weight() const {
  return view(weights_, types_.compute, {whole_ ? shard_.padded(layout_.owned()) : part_elements()});
}
Tensor ZeroShard::own_weight() const {
  return view(weights_, types_.compute, {part_elements()}, whole_ ? shard_.begin(layout_.owned()) : 0);
}
Tensor ZeroShard::own_master() const {
  return masters_.memory() ? view(masters_, types_.master, {part_elements()}) : own_weight();
}

std::vector<Tensor> ZeroShard::offloaded() const {
  std::vector<Tensor> tensors;
  if (!offloads_ || !optimizer_) return tensors;
  if (masters_.memory()) tensors.push_back(own_master());
  for (const Tensor& moment : optimizer_->state()) tensors.push_back(moment);
  return tensors;
}

void ZeroShard::publish(Stream& stream) {
  if (masters_.memory()) cast({.y = own_weight(), .x = own_master()}, stream);
}

void ZeroShard::publish(std::int64_t begin, const Tensor& masters, Stream& stream) {
  cast({.y = own_weight().slice(0, begin, masters.elements()), .x = masters}, stream);
}

void ZeroShard::update(ConstTensor gradient, ConstTensor control, Stream& stream) {
  if (!optimizer_) return;
  if (masters_.memory())
    optimizer_->update(own_master(), own_weight(), gradient, control, stream);
  else
    optimizer_->update(own_weight(), {}, gradient, control, stream);
}

void ZeroShard::update(std::int64_t begin, std::span<const Tensor> brought, ConstTensor gradient, ConstTensor control,
                       Stream& stream) {
  const bool apart = masters_.memory() != nullptr;
  const std::int64_t count = brought[0].elements();
  const Tensor weight = own_weight().slice(0, begin, count);
  optimizer_->update({.begin = begin,
                      .master = apart ? brought[0] : weight,
                      .weight = apart ? weight : Tensor{},
                      .state = apart ? brought.subspan(1) : brought,
                      .gradient = gradient.slice(0, begin, count)},
                     control, stream);
}

void ZeroShard::update_on_host(std::int64_t begin, const Tensor& weight, ConstTensor gradient, ConstTensor control,
                               Stream& stream) const {
  const bool apart = masters_.memory() != nullptr;
  const std::int64_t count = weight.elements();
  const Tensor master = apart ? own_master().slice(0, begin, count) : weight;
  // An optimizer that is not to update leaves the copy as it finds it, which is not the weights.
  if (apart && stream.device() == Device::cpu && control.data<double>()[kFinite] == 0)
    return cast({.y = weight, .x = master}, stream);
  std::vector<Tensor> state = optimizer_->state();
  for (Tensor& moment : state) moment = moment.slice(0, begin, count);
  optimizer_->update(
      {.begin = begin, .master = master, .weight = apart ? weight : Tensor{}, .state = state, .gradient = gradient},
      control, stream);
}

}  // namespace lockstep
