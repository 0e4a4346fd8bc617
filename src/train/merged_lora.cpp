#include "train/merged_lora.h"

#include <fmt/format.h>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/model.h"

namespace lockstep {

namespace {
constexpr std::string_view kWeight = ".weight";
}

MergedLora::MergedLora(const Checkpoint& adapters, const RunSpec& run, Stream& stream)
    : adapters_(adapters),
      model_(run.model),
      lora_(run.lora),
      stream_(stream),
      tensors_(logical_tensors(Model(run.model, 1, 1, DType::f32))),
      base_(run, tensors_) {
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  base_.require(base_.fingerprint(*memory, stream_), lora_.base, adapters.path().string());
}

// Weights may be loaded in another type than they were saved in.
Tensor MergedLora::load(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype, Memory& memory,
                        Buffer& room) const {
  const LogicalTensor logical{name, shape};
  room = memory.allocate(logical.elements() * size_of(dtype), Tag::workspace);
  const Tensor flat = view(room, dtype, {logical.elements()});
  const StateTensor wanted{
      .part = kWeightPart, .tensor = logical, .range = flat_range(0, logical.elements()), .live = flat};
  adapters_.load({&wanted, 1}, stream_);
  return flat.reshape(Shape(std::span(shape)));
}

ConstTensor MergedLora::values(const LogicalTensor& tensor, Memory& memory, Buffer& room) const {
  Buffer of_base;
  const ConstTensor weight = base_.values(tensor, memory, of_base, stream_);
  const std::string projection = tensor.name.substr(0, tensor.name.size() - kWeight.size());
  if (!tensor.name.ends_with(kWeight) || !adapters_.manifest().find(kWeightPart, lora_a_name(projection))) {
    if (of_base.memory()) room = std::move(of_base);
    return weight;
  }
  const bool in_out = model_.in_out_weights;
  const std::int64_t out = tensor.shape[in_out ? 1 : 0], in = tensor.shape[in_out ? 0 : 1], r = lora_.rank;
  const DType sums = accumulator_of(weight.dtype());
  Buffer a_room, b_room, wide_room;
  const Tensor a = load(lora_a_name(projection), {r, in}, sums, memory, a_room);
  const Tensor b = load(lora_b_name(projection), {out, r}, sums, memory, b_room);
  scale({.y = b, .x = b, .factor = lora_.scale()}, stream_);
  const Shape shape{std::span(tensor.shape)};
  wide_room = memory.allocate(shape.elements() * size_of(sums), Tag::workspace);
  const Tensor wide = view(wide_room, sums, shape);
  cast({.y = wide, .x = weight.reshape(shape)}, stream_);
  // Stored (in, out), W is the sum's transpose: Aᵀ · Bᵀ.
  if (in_out)
    matmul({.c = wide, .a = a, .b = b, .transpose_a = true, .transpose_b = true, .accumulate = true}, stream_);
  else
    matmul({.c = wide, .a = b, .b = a, .accumulate = true}, stream_);
  if (weight.dtype() == sums) {
    room = std::move(wide_room);
    return wide;
  }
  room = memory.allocate(shape.elements() * size_of(weight.dtype()), Tag::workspace);
  const Tensor merged = view(room, weight.dtype(), shape);
  cast({.y = merged, .x = wide}, stream_);
  return merged;
}

}  // namespace lockstep
