#include "parallel/unit_storage.h"

#include "kernels/elementwise.h"

namespace lockstep {

StorageTypes storage_types(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return {DType::f64, DType::f64, DType::f64};
    case Precision::fp32:
      return {DType::f32, DType::f32, DType::f32};
    case Precision::bf16:
      return {DType::bf16, DType::f32, DType::f32};
    case Precision::fp16:
      return {DType::f16, DType::f32, DType::f32};
  }
  LOCKSTEP_CHECK(false, "precision {}", static_cast<int>(precision));
}

UnitStorage::UnitStorage(const UnitLayout& layout, const StorageTypes& types, const OptimizerSpec& optimizer,
                         Memory& memory, Stream& stream)
    : layout_(layout),
      types_(types),
      optimizer_(optimizer, {layout.owned(), layout.decayed(), types.master}, memory, layout.name(), stream) {
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
