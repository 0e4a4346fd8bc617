// A rank's state as logical tensors: what is saved, set and resumed (rank_state.h).
#include <algorithm>
#include <map>

#include "base/philox.h"
#include "checkpoint/local_state.h"
#include "checkpoint/state_runs.h"
#include "kernels/elementwise.h"
#include "kernels/random.h"
#include "tensor/transfer.h"
#include "train/rank_state.h"

namespace lockstep {

void RankState::Named::put(std::span<const double> here, std::span<double> there) const {
  for (const Run& run : runs)
    for (std::int64_t i = 0; i < run.rows(); ++i)
      std::copy_n(here.begin() + run.here.begin + i * run.here.pitch, run.row(),
                  there.begin() + run.there.begin + i * run.there.pitch);
}

void RankState::Named::take(std::span<double> here, std::span<const double> there) const {
  for (const Run& run : runs)
    for (std::int64_t i = 0; i < run.rows(); ++i)
      std::copy_n(there.begin() + run.there.begin + i * run.there.pitch, run.row(),
                  here.begin() + run.here.begin + i * run.here.pitch);
}

std::vector<RankState::Named> RankState::tensors() const {
  settle();
  std::vector<Named> all;
  for (const auto& [u, shard] : shards_)
    if (setup_.has(u))
      shard.each_piece([&, u = u, &shard = shard](const ZeroShard::Piece& piece) {
        // Of masters that are packed, what computes.
        const Tensor masters = shard.packed() ? shard.own_weight() : shard.own_master();
        all.push_back(
            {piece.tensor, piece.runs, piece.tensor.counted, piece.of(masters), piece.of(gradients_->reduced(u))});
      });
  return all;
}

std::vector<StateTensor> RankState::state(bool counted_alone) const {
  settle();
  std::vector<StateTensor> all;
  for (const auto& [u, shard] : shards_)
    if (shard.updates())
      shard.each_piece([&, u = u, &shard = shard](const ZeroShard::Piece& piece) {
        if (counted_alone && !piece.tensor.counted) return;
        const auto add = [&](std::string_view part, const Tensor& flat) {
          for (const Run& run : piece.runs) all.push_back(state_of(part, piece.tensor, run, piece.of(flat)));
        };
        const auto whole = [&](std::string_view part, const Tensor& flat) {
          const Tensor copy = masks_ ? masks_->whole(u, part) : Tensor{};
          LOCKSTEP_CHECK(copy || !shard.packed() || flat.elements() == shard.part_elements(),
                         "{} of {} is packed, and the state is not open", part, piece.tensor.name);
          return copy ? copy : flat;
        };
        add(kWeightPart, whole(kWeightPart, shard.own_master()));
        if (masks_ && masks_->whole(u, MaskSteps::kMaskPart) && is_masked(piece.tensor))
          add(MaskSteps::kMaskPart, masks_->whole(u, MaskSteps::kMaskPart));
        for (const auto& [name, packed] : shard.optimizer_state())
          add(setup_.step_groups() > 1 ? local_part(name, setup_.step_group()) : std::string(name),
              whole(name, packed));
        if (const Tensor momentum = local_ ? local_->momentum(u) : Tensor{}) add(LocalSteps::kMomentumPart, momentum);
      });
  return all;
}

std::vector<StateTensor> RankState::owed(bool counted_alone) const {
  std::vector<StateTensor> all;
  for (const auto& [unit, begin, elements] : gradients_->owed()) {
    const UnitLayout& layout = setup_.model.unit(unit).layout();
    for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p) {
      const StoredParameter& parameter = layout.parameters()[static_cast<std::size_t>(p)];
      const std::int64_t shift = layout.offset(p) - begin;  // from the parameter's beginning to that of `elements`
      for (std::size_t i = 0; i < parameter.pieces.size() && !parameter.tied; ++i) {
        if (counted_alone && !parameter.pieces[i].counted) continue;
        for (Run run : parameter.runs_of(i)) {
          run.here.begin += shift;
          for (const Run& part : clipped(run, 0, elements.elements()))
            all.push_back(state_of(kResidualPart, parameter.pieces[i], part, elements));
        }
      }
    }
  }
  return all;
}

void RankState::open_state(bool in_turns) {
  if (masks_) masks_->open(in_turns);
}

void RankState::turn_state_to(const std::string& tensor) { masks_->turn_to(tensor); }

void RankState::close_state() {
  if (masks_) masks_->close();
}

void RankState::init_weights(bool frozen_too) {
  if (setup_.on_meta()) return publish();  // there is nothing to set, row by row
  for (auto& [u, shard] : shards_) {
    if (shard.master_is_offloaded())
      visit_masters(shard, Staging::Access::write, [&, &shard = shard](const Staging::Window& w) {
        clear(w.parts[0], w.stream);  // padding
        init_masters(shard, w.begin, w.parts[0]);
      });
    else
      init_masters(shard, 0, shard.own_master());
    if (!frozen_too) continue;
    shard.each_frozen_piece([&, &shard = shard](const ZeroShard::Piece& piece) {
      if (!piece.runs.empty()) init_piece(piece, piece.of(shard.flat_frozen()));
    });
  }
  publish();
}

// `masters`: those from element `begin` of the shard's on.
void RankState::init_masters(const ZeroShard& shard, std::int64_t begin, const Tensor& masters) {
  shard.each_piece_in(begin, begin + masters.elements(), [&](const ZeroShard::Piece& piece) {
    if (!piece.runs.empty()) init_piece(piece, piece.of(masters));
  });
}

void RankState::init_piece(const ZeroShard::Piece& piece, const Tensor& values) {
  const std::uint64_t key = random_key(setup_.options.seed, "init/" + piece.tensor.name);
  const StoredParameter& like = piece.parameter;
  const auto set = [&](const Tensor& part, const Run& run) {
    if (like.init == Init::normal)
      init_normal({.x = part,
                   .key = key,
                   .first = run.there.begin,
                   .std = like.init_std,
                   .row = run.rows() == 1 ? 0 : run.row(),
                   .pitch = run.rows() == 1 ? 0 : run.there.pitch},
                  setup_.stream);
    else
      fill({.y = part, .value = like.init == Init::ones ? 1.0 : 0.0}, setup_.stream);
  };
  for (const Run& run : piece.runs) {
    const Tensor part = elements_of(run, values);
    if (part.dims() == 1) {
      set(part, run);
      continue;
    }
    for (std::int64_t i = 0; i < run.rows(); ++i)
      set(part.slice(0, i, 1).reshape({run.row()}), Run::flat(0, run.there.begin + i * run.there.pitch, run.row()));
  }
}

std::vector<StateTensor> RankState::frozen() const {
  std::vector<StateTensor> all;
  for (const auto& [u, shard] : shards_)
    shard.each_frozen_piece([&, &shard = shard](const ZeroShard::Piece& piece) {
      for (const Run& run : piece.runs)
        all.push_back(state_of(kWeightPart, piece.tensor, run, piece.of(shard.flat_frozen())));
    });
  return all;
}

void RankState::load_frozen(std::span<const ConstTensor> values) {
  const std::vector<LogicalTensor> all = frozen_tensors(setup_.model);
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  std::map<std::string_view, ConstTensor> by_name;
  for (std::size_t i = 0; i < all.size(); ++i) by_name[all[i].name] = values[i];
  for (const auto& [u, shard] : shards_)
    shard.each_frozen_piece([&, &shard = shard](const ZeroShard::Piece& piece) {
      upload_runs(piece.of(shard.flat_frozen()), piece.runs, by_name.at(piece.tensor.name), setup_.stream);
    });
}

void RankState::load(std::span<const ConstTensor> values) {
  const std::vector<LogicalTensor> all = logical_tensors(setup_.model);
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  auto value = values.begin();
  auto name = all.begin();
  for (const Named& named : tensors()) {  // in the same order
    for (; name->name != named.tensor.name; ++name) ++value;
    LOCKSTEP_CHECK(value->elements() == named.tensor.elements(), "{}: {} values for {} elements", named.tensor.name,
                   value->elements(), named.tensor.elements());
    upload_runs(named.master, named.runs, *value, setup_.stream);
  }
  publish();
}

void RankState::resume(std::int64_t batches, std::int64_t updates, const std::optional<LossScaleState>& scale) {
  publish();
  if (masks_ && masks_->is_open()) {
    masks_->take();
    for (const auto& [u, shard] : shards_) weights_->ready(u);
    send_weights();
  }
  if (scale && setup_.options.precision.loss_scale.kind == LossScale::Kind::dynamic) loss_scale_ = *scale;
  batches_ = batches;
  updates_ = updates;
  write_control();
}

}  // namespace lockstep
