// What a replica holds: its tensors by name, where they come from, and what of them the other ranks have to get.
#include <algorithm>

#include "base/philox.h"
#include "checkpoint/state_runs.h"
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

void Replica::Named::put(std::span<const double> here, std::span<double> there) const {
  for (const Run& run : runs)
    for (std::int64_t i = 0; i < run.rows(); ++i)
      std::copy_n(here.begin() + run.here.begin + i * run.here.pitch, run.row(),
                  there.begin() + run.there.begin + i * run.there.pitch);
}

void Replica::Named::take(std::span<double> here, std::span<const double> there) const {
  for (const Run& run : runs)
    for (std::int64_t i = 0; i < run.rows(); ++i)
      std::copy_n(there.begin() + run.there.begin + i * run.there.pitch, run.row(),
                  here.begin() + run.here.begin + i * run.here.pitch);
}

std::vector<Replica::Named> Replica::tensors() const {
  std::vector<Named> all;
  for (const auto& [u, unit] : storage_)
    if (has(u))
      unit.each_piece([&, u = u, &unit = unit](const ZeroShard::Piece& piece) {
        all.push_back({piece.tensor, piece.runs, piece.tensor.counted, piece.of(unit.own_master()),
                       piece.of(gradients_->reduced(u))});
      });
  return all;
}

std::vector<StateTensor> Replica::state(bool counted_alone) const {
  std::vector<StateTensor> all;
  for (const auto& [u, unit] : storage_)
    if (unit.updates())
      unit.each_piece([&, &unit = unit](const ZeroShard::Piece& piece) {
        if (counted_alone && !piece.tensor.counted) return;
        const auto add = [&](std::string_view part, const Tensor& flat) {
          for (const Run& run : piece.runs) all.push_back(state_of(part, piece.tensor, run, piece.of(flat)));
        };
        add(kWeightPart, unit.own_master());
        for (const auto& [name, flat] : unit.optimizer_state()) add(name, flat);
      });
  return all;
}

void Replica::init_weights() {
  if (stream_.device() == Device::meta) return publish();  // there is nothing to set, row by row
  for (auto& [u, unit] : storage_)
    unit.each_piece([&, &unit = unit](const ZeroShard::Piece& piece) {
      const std::uint64_t key = random_key(options_.seed, "init/" + piece.tensor.name);
      const StoredParameter& like = piece.parameter;
      const auto set = [&](const Tensor& part, const Run& run) {
        if (like.init == Init::normal)
          init_normal({.x = part,
                       .key = key,
                       .first = run.there.begin,
                       .std = like.init_std,
                       .row = run.rows() == 1 ? 0 : run.row(),
                       .pitch = run.rows() == 1 ? 0 : run.there.pitch},
                      stream_);
        else
          fill({.y = part, .value = like.init == Init::ones ? 1.0 : 0.0}, stream_);
      };
      for (const Run& run : piece.runs) {
        const Tensor part = elements_of(run, piece.of(unit.own_master()));
        if (part.dims() == 1) {
          set(part, run);
          continue;
        }
        for (std::int64_t i = 0; i < run.rows(); ++i)
          set(part.slice(0, i, 1).reshape({run.row()}), Run::flat(0, run.there.begin + i * run.there.pitch, run.row()));
      }
    });
  publish();
}

void Replica::load(std::span<const ConstTensor> values) {
  const std::vector<LogicalTensor> all = logical_tensors(model_);
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  auto value = values.begin();
  auto name = all.begin();
  for (const Named& named : tensors()) {  // in the same order
    for (; name->name != named.tensor.name; ++name) ++value;
    LOCKSTEP_CHECK(value->elements() == named.tensor.elements(), "{}: {} values for {} elements", named.tensor.name,
                   value->elements(), named.tensor.elements());
    upload_runs(named.master, named.runs, *value, stream_);
  }
  publish();
}

// Weights everywhere become what the masters say.
void Replica::publish() {
  for (auto& [u, unit] : storage_) unit.publish(stream_);
  exchange_tied_weight();
  for (const auto& [u, unit] : storage_) {
    if (!step_.shape.publishes) continue;
    weights_->publish(u);
    weights_->ready(u);
  }
}

// A copy of a tied weight is what its owner says.
void Replica::exchange_tied_weight() {
  const StepShape& shape = step_.shape;
  if (!shape.tie_is_sent()) return;
  if (has(shape.tie_owner)) exchange({ActionKind::send_tied_weight, shape.tie_owner});
  if (has(shape.tie_borrower)) exchange({ActionKind::receive_tied_weight, shape.tie_borrower});
  links_.settle();
}

void Replica::settle() {
  links_.settle();
  for (int u = 0; u < model_.units(); ++u) weights_->ready(u);
}

void Replica::resume(std::int64_t batches, std::int64_t updates) {
  publish();
  batches_done_ = batches;
  steps_done_ = updates;
  write_controls();
}

}  // namespace lockstep
