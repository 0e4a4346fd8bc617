#include "model/unit_costs.h"

#include <algorithm>

#include "spec/machine/balance.h"
#include "tensor/memory.h"
#include "tensor/meta/stream.h"

namespace lockstep {

namespace {

double balance_of(Device device) { return device == Device::cuda ? kGpuBalance : kCpuBalance; }

double cost_of(const meta::Work& work, double balance) {
  const auto in_bytes = [&](std::int64_t flops) { return static_cast<double>(flops) / balance; };
  const double products = std::max(in_bytes(work.matmul_flops), static_cast<double>(work.matmul_bytes));
  const auto others = static_cast<double>(work.bytes_read + work.bytes_written - work.matmul_bytes);
  return products + std::max(in_bytes(work.flops - work.matmul_flops), others);
}

// Tensors of a unit that has everything.
UnitTensors tensors_of(const Unit& unit, DType dtype, Memory& memory, std::vector<Buffer>& buffers) {
  UnitTensors tensors;
  const DType sums = accumulator_of(dtype);
  for (const StoredParameter& p : unit.layout().parameters()) {
    const Shape shape(std::span(p.shape));
    const auto make = [&](DType type) {
      buffers.push_back(memory.allocate(shape.elements() * size_of(type), Tag::parameter));
      return view(buffers.back(), type, shape);
    };
    tensors.weights.push_back(make(dtype));
    tensors.gradients.push_back(make(sums));
  }
  return tensors;
}

}  // namespace

std::vector<double> unit_costs(const Model& model, Device runs_on) {
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::meta, ledger);
  const StepShape shape = model.step_shape(1);
  const std::vector<Action> actions = serial_step(shape);
  const StepActivations activations(model.slots(), actions, shape, *memory);
  std::vector<Buffer> buffers;
  const auto make = [&](DType type, const Shape& of) {
    buffers.push_back(memory->allocate(of.elements() * size_of(type), Tag::data));
    return view(buffers.back(), type, of);
  };
  const std::int64_t B = model.B(), T = model.T(), half = model.spec().head_width / 2;
  const DType sums = accumulator_of(model.dtype());
  Batch batch{.tokens = make(DType::i32, {B, T}),
              .targets = make(DType::i32, {B * T}),
              .positions = make(DType::i32, {T}),
              .loss_scale = make(sums, {1}),
              .losses = make(sums, {B * T})};
  if (model.spec().positions == PositionKind::rope) {
    batch.rope_cos = make(sums, {T, half});
    batch.rope_sin = make(sums, {T, half});
  }
  std::vector<UnitTensors> tensors;
  for (int u = 0; u < model.units(); ++u) tensors.push_back(tensors_of(model.unit(u), model.dtype(), *memory, buffers));

  meta::Stream stream;
  std::vector<double> costs(static_cast<std::size_t>(model.units()), 0);
  for (const Action& a : actions) {
    if (!is_phase(a.kind)) continue;
    stream.work() = {};
    const Call call{
        .unit = tensors[static_cast<std::size_t>(a.unit)], .at = activations.of(0), .batch = batch, .stream = stream};
    run_phase(model.unit(a.unit), a.kind, call);
    costs[static_cast<std::size_t>(a.unit)] += cost_of(stream.work(), balance_of(runs_on));
  }
  return costs;
}

}  // namespace lockstep
