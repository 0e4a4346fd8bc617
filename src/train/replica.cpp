#include "train/replica.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/norm_sum.h"
#include "kernels/random.h"
#include "kernels/rope.h"
#include "kernels/step_control.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

DType sums_type(Precision precision) { return accumulator_of(storage_types(precision).compute); }

// Host copies of a tensor of the accumulator type, as doubles.
std::vector<double> to_doubles(ConstTensor t, Stream& stream) {
  std::vector<double> result(t.elements());
  if (t.dtype() == DType::f64) {
    download(result.data(), t, stream);
  } else {
    std::vector<float> narrow(t.elements());
    download(narrow.data(), t, stream);
    std::copy(narrow.begin(), narrow.end(), result.begin());
  }
  return result;
}

}  // namespace

Replica::Replica(const Options& options, Memory& memory, Stream& stream)
    : options_(options),
      memory_(memory),
      stream_(stream),
      model_(options.spec, options.B, options.T, storage_types(options.precision).compute),
      order_(options.order.empty() ? model_.training_order() : options.order) {
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
  activations_ = Activations(model_.slots(), order_, memory);

  const std::int64_t tokens = options.B * options.T;
  tokens_ = memory.allocate(tokens * 4, Tag::data);
  targets_ = memory.allocate(tokens * 4, Tag::data);
  positions_ = memory.allocate(options.T * 4, Tag::data);
  loss_scale_ = memory.allocate(8, Tag::data);
  bins_ = memory.allocate(kNormBins * 8, Tag::workspace);
  control_ = memory.allocate(kStepControls * 8, Tag::workspace);

  std::vector<std::int32_t> positions(options.T);
  std::iota(positions.begin(), positions.end(), 0);
  upload(view(positions_, DType::i32, {options.T}), positions.data(), stream);
  if (options.spec.positions == PositionKind::rope) {
    const Shape shape{options.T, options.spec.head_width / 2};
    const DType type = sums_type(options.precision);
    cos_ = memory.allocate(shape.elements() * size_of(type), Tag::data);
    sin_ = memory.allocate(shape.elements() * size_of(type), Tag::data);
    RopeTableArgs args{.cos = view(cos_, type, shape),
                       .sin = view(sin_, type, shape),
                       .positions = view(positions_, DType::i32, {options.T}),
                       .theta = options.spec.rope_theta};
    if (const auto& s = options.spec.rope_scaling)
      args.slowing =
          RopeSlowing{s->factor, s->low_freq_factor, s->high_freq_factor, static_cast<double>(s->original_positions)};
    rope_table(args, stream);
  }
}

std::vector<Replica::Named> Replica::tensors() const {
  std::vector<Named> all;
  for (int u = 0; u < model_.units(); ++u) {
    const auto& parameters = model_.unit(u).layout().parameters();
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (parameters[p].tied) continue;
      const std::int64_t elements = parameters[p].elements();
      const Tensor master = storage_[u].master(p).reshape({elements}),
                   gradient = storage_[u].gradient(p).reshape({elements});
      std::int64_t first = 0;
      for (const LogicalTensor& piece : parameters[p].pieces) {
        all.push_back({piece, master.slice(0, first, piece.elements()), gradient.slice(0, first, piece.elements())});
        first += piece.elements();
      }
    }
  }
  return all;
}

void Replica::init_weights() {
  for (int u = 0; u < model_.units(); ++u) {
    const auto& parameters = model_.unit(u).layout().parameters();
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (parameters[p].tied) continue;
      const Tensor flat = storage_[u].master(p).reshape({parameters[p].elements()});
      std::int64_t first = 0;
      for (const LogicalTensor& piece : parameters[p].pieces) {
        const Tensor part = flat.slice(0, first, piece.elements());
        first += piece.elements();
        if (parameters[p].init == Init::normal)
          init_normal(
              {.x = part, .key = random_key(options_.seed, "init/" + piece.name), .std = parameters[p].init_std},
              stream_);
        else
          fill({.y = part, .value = parameters[p].init == Init::ones ? 1.0 : 0.0}, stream_);
      }
    }
    storage_[u].publish(stream_);
  }
}

void Replica::load(std::span<const ConstTensor> values) {
  const std::vector<Named> all = tensors();
  LOCKSTEP_CHECK(values.size() == all.size(), "{} values for {} tensors", values.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    LOCKSTEP_CHECK(values[i].elements() == all[i].tensor.elements(), "{}: {} values for {} elements",
                   all[i].tensor.name, values[i].elements(), all[i].tensor.elements());
    cast({.y = all[i].master, .x = values[i].reshape({values[i].elements()})}, stream_);
  }
  for (UnitStorage& unit : storage_) unit.publish(stream_);
}

Batch Replica::set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, bool training) {
  const std::int64_t B = options_.B, T = options_.T;
  LOCKSTEP_CHECK(std::ssize(tokens) == B * T && std::ssize(targets) == B * T, "{} tokens and {} targets for {} x {}",
                 tokens.size(), targets.size(), B, T);
  upload(view(tokens_, DType::i32, {B, T}), tokens.data(), stream_);
  upload(view(targets_, DType::i32, {B * T}), targets.data(), stream_);
  valid_targets_ = std::ranges::count_if(targets, [](std::int32_t t) { return t != kIgnoredTarget; });
  // A batch without a target has loss and gradient zero.
  const double scale = valid_targets_ > 0 ? 1.0 / static_cast<double>(valid_targets_) : 0.0;
  const DType sums = sums_type(options_.precision);
  const float narrow = static_cast<float>(scale);
  upload(view(loss_scale_, sums, {1}), sums == DType::f64 ? static_cast<const void*>(&scale) : &narrow, stream_);
  Batch batch{.tokens = view(tokens_, DType::i32, {B, T}),
              .targets = view(targets_, DType::i32, {B * T}),
              .positions = view(positions_, DType::i32, {T}),
              .loss_scale = view(loss_scale_, sums, {1}),
              .dropout_seed = random_key(options_.seed, "dropout") + static_cast<std::uint64_t>(batches_done_),
              .training = training};
  if (cos_.memory()) {
    const Shape shape{T, options_.spec.head_width / 2};
    batch.rope_cos = view(cos_, sums, shape);
    batch.rope_sin = view(sin_, sums, shape);
  }
  return batch;
}

double Replica::run(const std::vector<Moment>& order, const Batch& batch) {
  for (const Moment& moment : order) {
    run_phase(model_.unit(moment.unit), moment.phase, call(moment.unit, batch));
  }
  return mean_loss();
}

double Replica::mean_loss() const {
  double total = 0;
  for (const double loss : to_doubles(model_.head().losses(activations_), stream_)) total += loss;
  return valid_targets_ > 0 ? total / static_cast<double>(valid_targets_) : 0;
}

double Replica::compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  const Batch batch = set_batch(tokens, targets, true);
  last_loss_ = run(order_, batch);
  if (const Model::Tie* tie = model_.tie()) {
    const Tensor owner = storage_[tie->owner_unit].gradient(tie->owner_parameter);
    add({.y = owner, .a = owner, .b = storage_[tie->borrower_unit].gradient(tie->borrower_parameter)}, stream_);
  }
  return last_loss_;
}

Replica::Result Replica::apply_gradients() {
  const Tensor bins = view(bins_, DType::i64, {kNormBins}), control = view(control_, DType::f64, {kStepControls});
  for (std::size_t u = 0; u < storage_.size(); ++u)
    norm_sum({.bins = bins, .x = storage_[u].flat_gradient(), .accumulate = u > 0}, stream_);
  double host[kStepControls] = {};
  host[kLearningRate] = options_.optimizer.learning_rate;
  host[kStep] = static_cast<double>(steps_done_ + 1);
  upload(control, host, stream_);
  step_control({.control = control, .bins = bins, .clip = options_.optimizer.clip}, stream_);
  for (UnitStorage& unit : storage_) unit.update(control, stream_);
  download(host, control, stream_);
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
  const Batch batch = set_batch(tokens, targets, false);
  const double loss = run(model_.evaluation_order(), batch);
  const std::int64_t V = options_.spec.vocabulary, rows = options_.B * options_.T;
  if (logits.empty()) return loss;
  LOCKSTEP_CHECK(std::ssize(logits) == rows * V, "room for {} logits of {}", logits.size(), rows * V);
  const DType sums = sums_type(options_.precision);
  const Buffer whole = memory_.allocate(rows * V * size_of(sums), Tag::workspace);
  const Tensor out = view(whole, sums, {rows, V});
  model_.head().logits(out, 0, call(model_.units() - 1, batch));
  std::ranges::copy(to_doubles(out, stream_), logits.begin());
  return loss;
}

}  // namespace lockstep
