#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/disk/file_memory.h"

namespace lockstep {

Model::Model(const ModelSpec& spec, std::int64_t B, std::int64_t T, DType dtype, const Execution& how)
    : spec_(spec), B_(B), T_(T), dtype_(dtype), halves_(how.halves) {
  LOCKSTEP_CHECK(how.varlen || T * how.context.size() <= spec.max_positions, "{} tokens in a model of {} positions",
                 T * how.context.size(), spec.max_positions);
  const Build build{spec_, B, T, dtype, slots_, how};
  const ModelUnits all = build.units();
  const int count = all.count();
  if (how.halves) slots_.make_phases_whole();
  if (how.memory.offload_activations == Offload::disk) slots_.align_to(disk::kBlock);  // as files are read and written

  // Between unit u and u + 1: what u hands on lives until u + 1's weights are done with it, its gradient until u's are.
  // A block whose weights come later is done with what it was given in its input phase (model/norm.h), as is one whose
  // norm is frozen. A gradient that nobody wants has no slot.
  between_.resize(static_cast<std::size_t>(count));
  for (int u = 0; u + 1 < count; ++u) {
    const Shape shape{build.own_tokens(), spec.width};
    between_[u].y = between_[u + 1].x = build.add_kept(SlotSpec{
        fmt::format("x.{}", u + 1),
        dtype,
        shape,
        {u, Phase::forward},
        {u + 1, (all.is_of_block(u + 1) && how.weights_later) || build.frozen()
                    ? Phase::input
                    : Phase::weight}}.of(SlotRows::own));
    if (!build.hands_back(u + 1)) continue;
    const bool ends_trained =
        !all.halves
            ? build.trained().down
            : (all.is_of_block(u) && u == all.first_of(static_cast<int>(all.block_of(u)) + 1) ? build.trained().out
                                                                                              : build.trained().down);
    between_[u].dy = between_[u + 1].dx =
        slots_.add(SlotSpec{fmt::format("dx.{}", u + 1),
                            dtype,
                            shape,
                            {u + 1, Phase::input},
                            {u, all.is_of_block(u) ? build.last_of_branch_gradient(ends_trained) : Phase::weight},
                            Half::second}
                       .of(SlotRows::own));
    if (!all.is_of_block(u)) continue;
    const bool ends_attention = all.halves && u == all.first_of(static_cast<int>(all.block_of(u)) + 1);
    between_[u].dy_amax = between_[u + 1].dx_amax =
        gradient_amax_slot(build, fmt::format("dx.{}", u + 1), u + 1, u,
                           ends_attention ? Attention::ends_in_fp8(build) : Mlp::ends_in_fp8(build));
  }

  auto embedding = std::make_unique<Embedding>(build, 0, between_[0]);
  tie_.owner_unit = 0;
  tie_.owner_parameter = embedding->table();
  units_.push_back(std::move(embedding));
  for (int u = 1; u + 1 < count; ++u) {
    const std::int64_t layer = all.block_of(u);
    if (!all.halves)
      units_.push_back(std::make_unique<Block>(build, u, layer, between_[u]));
    else if (u == all.first_of(static_cast<int>(layer) + 1))
      units_.push_back(std::make_unique<AttentionHalf>(build, u, layer, between_[u]));
    else
      units_.push_back(std::make_unique<FeedForwardHalf>(build, u, layer, between_[u]));
  }
  auto head = std::make_unique<Head>(build, count - 1, between_[count - 1]);
  head_ = head.get();
  tie_.borrower_unit = count - 1;
  tie_.borrower_parameter = head->weight();
  units_.push_back(std::move(head));
}

StepShape Model::step_shape(int micro) const {
  StepShape shape{.units = units(),
                  .micro = micro,
                  .tie_owner = tie() ? tie_.owner_unit : -1,
                  .tie_borrower = tie() ? tie_.borrower_unit : -1};
  const auto frozen = [](const auto& one) { return !one->layout().trains(); };
  if (std::ranges::any_of(units_, frozen))
    for (const auto& one : units_) shape.frozen.push_back(frozen(one));
  return shape;
}

static std::vector<LogicalTensor> tensors_of(const Model& model, bool frozen) {
  std::vector<LogicalTensor> all;
  for (int u = 0; u < model.units(); ++u)
    for (const StoredParameter& parameter : model.unit(u).layout().parameters())
      for (const ParameterPiece& piece : parameter.pieces)
        if (parameter.frozen == frozen) all.push_back(piece);
  return all;
}
std::vector<LogicalTensor> logical_tensors(const Model& model) { return tensors_of(model, false); }
std::vector<LogicalTensor> frozen_tensors(const Model& model) { return tensors_of(model, true); }

void run_phase(const Unit& unit, ActionKind phase, const Call& call) {
  switch (phase) {
    case ActionKind::forward:
      return unit.forward(call);
    case ActionKind::backward_input:
      return unit.backward_input(call);
    case ActionKind::backward_weight:
      return unit.backward_weight(call);
    default:
      LOCKSTEP_CHECK(false, "{} is no phase of a unit", static_cast<int>(phase));
  }
}

}  // namespace lockstep
