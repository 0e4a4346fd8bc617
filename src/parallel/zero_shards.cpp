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
    case Precision::fp8:  // products round what they multiply once more
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
      spec_(options.optimizer),
      shard_(options.shard),
      whole_(options.whole_weights),
      offloads_(options.state_in != nullptr),
      offloads_weights_(options.weights_offloaded_to != nullptr) {
  LOCKSTEP_CHECK(!whole_ || !offloads_weights_, "whole weights of {} offloaded", layout.name());
  Memory& state_memory = offloads_ ? *options.state_in : memory;
  const std::string& unit = layout.name();
  const std::int64_t first = shard_.begin(layout.owned()), part = part_elements();
  const bool rounds = types_.master == DType::bf16 || types_.moments == DType::bf16;
  const bool updates = options.updates && layout.owned() > 0;
  if (updates)
    optimizer_.emplace(options.optimizer,
                       FlatOptimizer::Range{.elements = part,
                                            .decayed = std::clamp<std::int64_t>(layout.decayed() - first, 0, part),
                                            .moments = types_.moments,
                                            .first = first,
                                            .rounding = rounds ? rounding_map(layout) : std::vector<RoundingRun>{}},
                       state_memory, unit, stream);
  const std::int64_t held = whole_ ? shard_.padded(layout.owned()) : part;
  Memory& weight_memory = offloads_weights_    ? *options.weights_offloaded_to
                          : options.weights_in ? *options.weights_in
                                               : memory;
  weights_ = weight_memory.allocate(held * size_of(types_.compute), Tag::parameter, unit);
  // Where weights are gathered, others read them from here.
  frozen_ = (whole_ ? memory : weight_memory)
                .allocate((whole_ ? layout.frozen() : shard_.elements(layout.frozen())) * size_of(types_.compute),
                          Tag::parameter, unit);
  if (updates && types_.compute != types_.master)
    masters_ = state_memory.allocate(part * size_of(types_.master), Tag::optimizer, unit);
  clear(flat_weight(), stream);
  clear(flat_frozen(), stream);
  if (masters_.memory()) clear(own_master(), stream);
}

Tensor ZeroShard::weight(int parameter) const {
  LOCKSTEP_CHECK(whole_, "the weights of {} are not whole", layout_.name());
  const StoredParameter& stored = layout_.parameters()[static_cast<std::size_t>(parameter)];
  return view(stored.frozen ? frozen_ : weights_, types_.compute, Shape(std::span(stored.shape)),
              layout_.offset(parameter));
}

Tensor ZeroShard::flat_frozen() const {
  return view(frozen_, types_.compute, {whole_ ? layout_.frozen() : shard_.elements(layout_.frozen())});
}

Tensor ZeroShard::flat_weight() const {
  return view(weights_, types_.compute, {whole_ ? shard_.padded(layout_.owned()) : part_elements()});
}
Tensor ZeroShard::own_weight() const {
  return view(weights_, types_.compute, {part_elements()}, whole_ ? shard_.begin(layout_.owned()) : 0);
}
Tensor ZeroShard::own_master() const {
  if (!masters_.memory()) return own_weight();
  return view(masters_, types_.master, {packed() ? kept() : part_elements()});
}

Staging::Pass ZeroShard::offloaded() const {
  Staging::Pass pass;
  if (!optimizer_) return pass;
  if (offloads_ && masters_.memory()) pass.emplace_back(own_master());
  if (offloads_)
    for (const Tensor& moment : optimizer_->state()) pass.emplace_back(moment);
  if (offloads_weights_)
    pass.emplace_back(own_weight(), masters_.memory() ? Staging::Access::write : Staging::Access::change);
  return pass;
}

Staging::Pass ZeroShard::offloaded_to_publish() const {
  Staging::Pass pass;
  if (!masters_.memory()) return pass;
  if (offloads_) pass.emplace_back(own_master(), Staging::Access::read);
  if (offloads_weights_) pass.emplace_back(own_weight(), Staging::Access::write);
  return pass;
}

void ZeroShard::publish(Stream& stream) {
  LOCKSTEP_CHECK(!packed(), "the masters of {} are packed", layout_.name());
  if (masters_.memory()) cast({.y = own_weight(), .x = own_master()}, stream);
}

void ZeroShard::publish(std::int64_t begin, std::int64_t count, std::span<const Tensor> brought, Stream& stream) {
  const Tensor masters = offloads_ ? brought.front() : own_master().slice(0, begin, count);
  const Tensor weights = offloads_weights_ ? brought.back() : own_weight().slice(0, begin, count);
  cast({.y = weights, .x = masters}, stream);
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
  const std::int64_t count = gradient.elements();
  const auto here = [&](const Tensor& whole) { return whole.slice(0, begin, count); };
  const Tensor weight = offloads_weights_ ? brought.back() : here(own_weight());
  const Tensor master = !apart ? weight : offloads_ ? brought.front() : here(own_master());
  std::vector<Tensor> state;
  for (const Tensor& moment : optimizer_->state())
    state.push_back(offloads_ ? brought[(apart ? 1 : 0) + state.size()] : here(moment));
  optimizer_->update(
      {.begin = begin, .master = master, .weight = apart ? weight : Tensor{}, .state = state, .gradient = gradient},
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
