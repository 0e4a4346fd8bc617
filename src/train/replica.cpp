#include "train/replica.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/elementwise.h"
#include "kernels/norm_sum.h"
#include "kernels/random.h"
#include "kernels/step_control.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

DType sums_type(Precision precision) { return accumulator_of(storage_types(precision).compute); }

std::int64_t micro_samples(const Replica::Options& o) {
  LOCKSTEP_CHECK(o.micro >= 1 && o.B % o.micro == 0, "{} samples in {} micro-batches", o.B, o.micro);
  return o.B / o.micro;
}

std::vector<Action> checked_actions(const Replica::Options& options, const Model& model) {
  const StepShape shape = model.step_shape(options.micro);
  std::vector<Action> actions = options.actions.empty() ? serial_step(shape) : options.actions;
  const auto fault = find_fault(actions, shape);
  LOCKSTEP_CHECK(!fault, "the list of actions is no step: {}", *fault);
  return actions;
}

}  // namespace

Replica::Replica(const Options& options, Memory& memory, Stream& stream)
    : options_(options),
      memory_(memory),
      stream_(stream),
      model_(options.spec, micro_samples(options), options.T, storage_types(options.precision).compute),
      actions_(checked_actions(options, model_)),
      batch_(options.spec, {options.B, options.T, options.micro, sums_type(options.precision)}, memory, stream) {
  const StorageTypes types = storage_types(options.precision);
  for (int u = 0; u < model_.units(); ++u)
    storage_.emplace_back(model_.unit(u).layout(), types, options.optimizer, memory, stream);
  for (int u = 0; u < model_.units(); ++u) {
    UnitTensors tensors;
    for (int p = 0; p < static_cast<int>(model_.unit(u).layout().parameters().size()); ++p) {
      const bool tied = model_.unit(u).layout().parameters()[p].tied;
      tensors.weights.push_back(tied ? storage_[model_.tie()->owner_unit].weight(model_.tie()->owner_parameter)
                                     : storage_[u].weight(p));
      tensors.gradients.push_back(storage_[u].gradient(p));
    }
    tensors_of_.push_back(std::move(tensors));
  }
  while (actions_[norm_at_].kind != ActionKind::norm) ++norm_at_;
  activations_ = StepActivations(model_.slots(), actions_, options.micro, memory);
  bins_ = memory.allocate(kNormBins * 8, Tag::workspace);
  control_ = memory.allocate(kStepControls * 8, Tag::workspace);
}

std::vector<Replica::Named> Replica::tensors() const {
  std::vector<Named> all;
  for (int u = 0; u < model_.units(); ++u)
    storage_[u].each_piece([&](const UnitStorage::Piece& piece) {
      all.push_back({piece.tensor, piece.of(storage_[u].flat_master()), piece.of(storage_[u].flat_gradient())});
    });
  return all;
}

std::vector<StateTensor> Replica::state() const {
  std::vector<StateTensor> all;
  for (const UnitStorage& unit : storage_)
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      all.push_back({.part = "weight", .tensor = piece.tensor, .live = piece.of(unit.flat_master())});
      for (const auto& [name, flat] : unit.optimizer_state())
        all.push_back({.part = std::string(name), .tensor = piece.tensor, .live = piece.of(flat)});
    });
  return all;
}

void Replica::init_weights() {
  for (UnitStorage& unit : storage_) {
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      const Tensor part = piece.of(unit.flat_master());
      const std::uint64_t key = random_key(options_.seed, "init/" + piece.tensor.name);
      if (piece.parameter.init == Init::normal)
        init_normal({.x = part, .key = key, .std = piece.parameter.init_std}, stream_);
      else
        fill({.y = part, .value = piece.parameter.init == Init::ones ? 1.0 : 0.0}, stream_);
    });
    unit.publish(stream_);
  }
}

void Replica::load(std::span<const ConstTensor> values) {
  const std::vector<Named> all = tensors();
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    LOCKSTEP_CHECK(values[i].elements() == all[i].tensor.elements(), "{}: {} values for {} elements",
                   all[i].tensor.name, values[i].elements(), all[i].tensor.elements());
    // On another device than the host's, a copy of the values is made there first.
    const ConstTensor host = values[i].reshape({values[i].elements()});
    Buffer copy;
    if (stream_.device() == Device::cuda) {
      copy = memory_.allocate(host.bytes(), Tag::workspace);
      upload(view(copy, host.dtype(), host.shape()), host.raw(), stream_);
    }
    cast(
        {.y = all[i].master,
         .x = stream_.device() == Device::cpu ? host
                                              : ConstTensor(copy.data(), host.dtype(), stream_.device(), host.shape())},
        stream_);
    stream_.synchronize();
  }
  for (UnitStorage& unit : storage_) unit.publish(stream_);
}

void Replica::resume(std::int64_t batches, std::int64_t updates) {
  for (UnitStorage& unit : storage_) unit.publish(stream_);
  batches_done_ = batches;
  steps_done_ = updates;
}

Call Replica::call(const Action& action, const Batch& batch) const {
  // The first micro-batch starts the gradients, the others add to them: sums over micro-batches ascend in any list.
  return {tensors_of_[action.unit], activations_.of(action.micro), batch, stream_, action.micro > 0};
}

void Replica::run(const Action& action, bool training, std::int64_t batch_number) {
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: {
      const std::uint64_t seed = random_key(options_.seed, "dropout") + static_cast<std::uint64_t>(batch_number);
      const Batch batch = batch_.micro_batch(action.micro, seed, training);
      return run_phase(model_.unit(action.unit), action.kind, call(action, batch));
    }
    case ActionKind::reduce:
      return reduce(action.unit);
    case ActionKind::norm:
      return take_norm();
    case ActionKind::update:
      return storage_[action.unit].update(view(control_, DType::f64, {kStepControls}), stream_);
  }
}

// One rank holds the whole batch's gradient already; what is left is to join the two homes of a tied weight.
void Replica::reduce(int unit) {
  const Model::Tie* tie = model_.tie();
  if (!tie || unit != tie->owner_unit) return;
  const Tensor owner = storage_[tie->owner_unit].gradient(tie->owner_parameter);
  add({.y = owner, .a = owner, .b = storage_[tie->borrower_unit].gradient(tie->borrower_parameter)}, stream_);
}

void Replica::take_norm() {
  const Tensor bins = view(bins_, DType::i64, {kNormBins}), control = view(control_, DType::f64, {kStepControls});
  for (std::size_t u = 0; u < storage_.size(); ++u)
    norm_sum({.bins = bins, .x = storage_[u].flat_gradient(), .accumulate = u > 0}, stream_);
  double host[kStepControls] = {};
  host[kLearningRate] = options_.optimizer.learning_rate;
  host[kStep] = static_cast<double>(steps_done_ + 1);
  upload(control, host, stream_);
  step_control({.control = control, .bins = bins, .clip = options_.optimizer.clip}, stream_);
}

double Replica::compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  batch_.set(tokens, targets, stream_);
  for (std::size_t i = 0; i < norm_at_; ++i) run(actions_[i], true, batches_done_);
  last_loss_ = batch_.mean_loss(stream_);
  return last_loss_;
}

Replica::Result Replica::apply_gradients() {
  for (std::size_t i = norm_at_; i < actions_.size(); ++i) run(actions_[i], true, batches_done_);
  double host[kStepControls] = {};
  download(host, view(control_, DType::f64, {kStepControls}), stream_);
  const bool updated = host[kFinite] != 0;
  if (updated) ++steps_done_;
  ++batches_done_;
  return {last_loss_, host[kNorm], updated};
}

Replica::Result Replica::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  compute_gradients(tokens, targets);
  return apply_gradients();
}

double Replica::evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         std::span<double> logits) {
  batch_.set(tokens, targets, stream_);
  const std::int64_t V = options_.spec.vocabulary, rows = options_.B / options_.micro * options_.T;
  LOCKSTEP_CHECK(logits.empty() || std::ssize(logits) == options_.micro * rows * V, "room for {} logits of {}",
                 logits.size(), options_.micro * rows * V);
  Buffer whole;
  if (!logits.empty()) whole = memory_.allocate(rows * V * size_of(sums_type(options_.precision)), Tag::workspace);
  for (const Action& action : forward_pass(model_.step_shape(options_.micro))) {
    run(action, false, batches_done_);
    if (logits.empty() || action.unit != model_.units() - 1) continue;
    const Tensor out = view(whole, sums_type(options_.precision), {rows, V});
    model_.head().logits(out, 0, call(action, batch_.micro_batch(action.micro, 0, false)));
    const std::vector<double> values = to_doubles(out, stream_);
    std::ranges::copy(values, logits.begin() + action.micro * rows * V);
  }
  return batch_.mean_loss(stream_);
}

}  // namespace lockstep
