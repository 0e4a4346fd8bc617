#include "parallel/unit_storage.h"

#include "kernels/elementwise.h"

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
  return {.compute = compute,
          .gradient = precision.gradients == StateType::full ? full : DType::bf16,
          .master = full,
          .moments = precision.moments == StateType::full ? full : DType::bf16};
}

UnitStorage::UnitStorage(const UnitLayout& layout, const StorageTypes& types, const OptimizerSpec& optimizer,
                         Memory& memory, Stream& stream)
    : layout_(layout),
      types_(types),
      optimizer_(optimizer, {.elements = layout.owned(), .decayed = layout.decayed(), .moments = types.moments}, memory,
                 layout.name(), stream) {
  const std::string& unit = layout.name();
  weights_ = memory.allocate(layout.owned() * size_of(types.compute), Tag::parameter, unit);
  gradients_ = memory.allocate(layout.elements() * size_of(types.gradient), Tag::gradient, unit);
  if (types.compute != types.master)
    masters_ = memory.allocate(layout.owned() * size_of(types.master), Tag::optimizer, unit);
  fill({.y = flat(weights_, types.compute), .value = 0}, stream);
  fill({.y = view(gradients_, types.gradient, {layout.elements()}), .value = 0}, stream);
  if (masters_.memory()) fill({.y = flat(masters_, types.master), .value = 0}, stream);
}

Tensor UnitStorage::part(const Buffer& buffer, DType dtype, int parameter) const {
  return view(buffer, dtype, Shape(std::span(layout_.parameters()[parameter].shape)), layout_.offset(parameter));
}

Tensor UnitStorage::weight(int parameter) const { return part(weights_, types_.compute, parameter); }
Tensor UnitStorage::gradient(int parameter) const { return part(gradients_, types_.gradient, parameter); }
Tensor UnitStorage::master(int parameter) const {
  return masters_.memory() ? part(masters_, types_.master, parameter) : weight(parameter);
}

Tensor UnitStorage::flat_gradient() const { return flat(gradients_, types_.gradient); }
Tensor UnitStorage::flat_master() const {
  return masters_.memory() ? flat(masters_, types_.master) : flat(weights_, types_.compute);
}

void UnitStorage::publish(Stream& stream) {
  if (masters_.memory()) cast({.y = flat(weights_, types_.compute), .x = flat(masters_, types_.master)}, stream);
}

void UnitStorage::update(ConstTensor control, Stream& stream) {
  const Tensor weights = flat(weights_, types_.compute);
  if (masters_.memory())
    optimizer_.update(flat(masters_, types_.master), weights, flat_gradient(), control, stream);
  else
    optimizer_.update(weights, {}, flat_gradient(), control, stream);
}

}  // namespace lockstep
