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
    : MergedLora(&adapters, nullptr, run, run.lora, stream) {}

MergedLora::MergedLora(const PeftAdapters& adapters, const RunSpec& run, Stream& stream)
    : MergedLora(nullptr, &adapters, run, adapters.lora(), stream) {}

MergedLora::MergedLora(const Checkpoint* checkpoint, const PeftAdapters* folder, const RunSpec& run,
                       const LoraSpec& lora, Stream& stream)
    : checkpoint_(checkpoint),
      folder_(folder),
      model_(run.model),
      lora_(lora),
      stream_(stream),
      tensors_(logical_tensors(Model(run.model, 1, 1, DType::f32))),
      base_(run, tensors_) {
  if (folder_) folder_->require_for(tensors_, model_.in_out_weights);
  if (lora_.base.empty()) return;
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  base_.require(base_.fingerprint(*memory, stream_), lora_.base,
                (folder_ ? folder_->folder() : checkpoint_->path()).string());
}

bool MergedLora::adapts(const std::string& projection) const {
  return folder_ ? folder_->adapts(projection)
                 : checkpoint_->manifest().find(kWeightPart, lora_a_name(projection)) != nullptr;
}

// Weights may be loaded in another type than they were saved in.
Tensor MergedLora::load(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype, Memory& memory,
                        Buffer& room) const {
  const LogicalTensor logical{name, shape};
  room = memory.allocate(logical.elements() * size_of(dtype), Tag::workspace);
  const Tensor flat = view(room, dtype, {logical.elements()});
  if (folder_) {
    cast({.y = flat, .x = folder_->matrix(name).reshape({logical.elements()})}, stream_);
    return flat.reshape(Shape(std::span(shape)));
  }
  const StateTensor wanted{
      .part = kWeightPart, .tensor = logical, .range = flat_range(0, logical.elements()), .live = flat};
  checkpoint_->load({&wanted, 1}, stream_);
  return flat.reshape(Shape(std::span(shape)));
}

ConstTensor MergedLora::values(const LogicalTensor& tensor, Memory& memory, Buffer& room) const {
  Buffer of_base;
  const ConstTensor weight = base_.values(tensor, memory, of_base, stream_);
  const std::string projection = tensor.name.substr(0, tensor.name.size() - kWeight.size());
  if (!tensor.name.ends_with(kWeight) || !adapts(projection)) {
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
