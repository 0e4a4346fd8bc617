// What a replica holds: its tensors by name, where they come from, and what of them the other ranks have to get.
#include "base/philox.h"
#include "checkpoint/convert.h"
#include "kernels/elementwise.h"
#include "kernels/random.h"
#include "tensor/transfer.h"
#include "train/replica.h"

namespace lockstep {

// Tells the device how many updates there were.
void Replica::write_controls() {
  double host[kStepControls] = {};
  host[kStep] = static_cast<double>(steps_done_);
  upload(control(), host, stream_);
}

std::vector<Replica::Named> Replica::tensors() const {
  std::vector<Named> all;
  for (int u = 0; u < model_.units(); ++u)
    storage_[u].each_piece([&](const UnitStorage::Piece& piece) {
      all.push_back({piece.tensor, piece.begin, piece.of(storage_[u].own_master()), piece.of(gradients_->reduced(u))});
    });
  return all;
}

std::vector<StateTensor> Replica::state() const {
  std::vector<StateTensor> all;
  for (const UnitStorage& unit : storage_)
    if (unit.updates())
      unit.each_piece([&](const UnitStorage::Piece& piece) {
        if (piece.elements == 0) return;
        const auto add = [&](std::string_view part, const Tensor& flat) {
          all.push_back(
              {.part = std::string(part), .tensor = piece.tensor, .begin = piece.begin, .live = piece.of(flat)});
        };
        add(kWeightPart, unit.own_master());
        for (const auto& [name, flat] : unit.optimizer_state()) add(name, flat);
      });
  return all;
}

void Replica::init_weights() {
  for (UnitStorage& unit : storage_)
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      if (piece.elements == 0) return;
      const Tensor part = piece.of(unit.own_master());
      const std::uint64_t key = random_key(options_.seed, "init/" + piece.tensor.name);
      if (piece.parameter.init == Init::normal)
        init_normal({.x = part, .key = key, .first = piece.begin, .std = piece.parameter.init_std}, stream_);
      else
        fill({.y = part, .value = piece.parameter.init == Init::ones ? 1.0 : 0.0}, stream_);
    });
  publish();
}

void Replica::load(std::span<const ConstTensor> values) {
  const std::vector<Named> all = tensors();
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    LOCKSTEP_CHECK(values[i].elements() == all[i].tensor.elements(), "{}: {} values for {} elements",
                   all[i].tensor.name, values[i].elements(), all[i].tensor.elements());
    LOCKSTEP_CHECK(values[i].contiguous(), "{}: its values have gaps", all[i].tensor.name);
    if (all[i].master.elements() == 0) continue;
    const char* from = static_cast<const char*>(values[i].raw());
    upload_floats(all[i].master, from + all[i].begin * size_of(values[i].dtype()), values[i].dtype(), stream_);
  }
  publish();
}

// Weights everywhere become what the masters say.
void Replica::publish() {
  for (std::size_t u = 0; u < storage_.size(); ++u) {
    storage_[u].publish(stream_);
    if (!shape_.publishes) continue;
    weights_->publish(static_cast<int>(u));
    weights_->ready(static_cast<int>(u));
  }
}

void Replica::settle() {
  for (int u = 0; u < model_.units(); ++u) weights_->ready(u);
}

void Replica::resume(std::int64_t batches, std::int64_t updates) {
  publish();
  batches_done_ = batches;
  steps_done_ = updates;
  write_controls();
}

}  // namespace lockstep
