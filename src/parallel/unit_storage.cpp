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

UnitStorage::UnitStorage(const UnitLayout& layout, const Options& options, Memory& memory, Stream& stream)
    : layout_(layout), types_(options.types), gradient_(options.gradient) {
  const std::string& unit = layout.name();
  LOCKSTEP_CHECK(gradient_.elements() == layout.owned(), "room for {} gradients of {}: {}", gradient_.elements(), unit,
                 layout.owned());
  if (options.updates)
    optimizer_.emplace(
        options.optimizer,
        FlatOptimizer::Range{.elements = layout.owned(), .decayed = layout.decayed(), .moments = types_.moments},
        memory, unit, stream);
  weights_ = memory.allocate(layout.owned() * size_of(types_.compute), Tag::parameter, unit);
  const std::int64_t tied = layout.elements() - layout.owned();
  if (tied > 0) tied_gradients_ = memory.allocate(tied * size_of(types_.gradient), Tag::gradient, unit);
  if (options.updates && types_.compute != types_.master)
    masters_ = memory.allocate(layout.owned() * size_of(types_.master), Tag::optimizer, unit);
  fill({.y = flat(weights_, types_.compute), .value = 0}, stream);
  fill({.y = gradient_, .value = 0}, stream);
  if (tied > 0) fill({.y = view(tied_gradients_, types_.gradient, {tied}), .value = 0}, stream);
  if (masters_.memory()) fill({.y = flat(masters_, types_.master), .value = 0}, stream);
}

Tensor UnitStorage::part(const Buffer& buffer, DType dtype, int parameter) const {
  return view(buffer, dtype, Shape(std::span(layout_.parameters()[parameter].shape)), layout_.offset(parameter));
}

Tensor UnitStorage::weight(int parameter) const { return part(weights_, types_.compute, parameter); }
Tensor UnitStorage::gradient(int parameter) const {
  const StoredParameter& stored = layout_.parameters()[parameter];
  const Shape shape{std::span(stored.shape)};
  const std::int64_t offset = layout_.offset(parameter);
  if (stored.tied) return view(tied_gradients_, types_.gradient, shape, offset - layout_.owned());
  return gradient_.slice(0, offset, stored.elements()).reshape(shape);
}
Tensor UnitStorage::master(int parameter) const {
  return masters_.memory() ? part(masters_, types_.master, parameter) : weight(parameter);
}

Tensor UnitStorage::flat_master() const {
  return masters_.memory() ? flat(masters_, types_.master) : flat(weights_, types_.compute);
}

void UnitStorage::publish(Stream& stream) {
  if (masters_.memory()) cast({.y = flat(weights_, types_.compute), .x = flat(masters_, types_.master)}, stream);
}

void UnitStorage::update(ConstTensor control, Stream& stream) {
  if (!optimizer_) return;
  const Tensor weights = flat(weights_, types_.compute);
  if (masters_.memory())
    optimizer_->update(flat(masters_, types_.master), weights, flat_gradient(), control, stream);
  else
    optimizer_->update(weights, {}, flat_gradient(), control, stream);
}

}  // namespace lockstep
