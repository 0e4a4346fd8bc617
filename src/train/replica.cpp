#include "train/replica.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "checkpoint/convert.h"
#include "comm/alone.h"
#include "kernels/elementwise.h"
#include "kernels/norm_sum.h"
#include "kernels/random.h"
#include "parallel/reduce_kind.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

Device host_of(Device device) { return device == Device::meta ? Device::meta : Device::cpu; }

DType sums_type(const PrecisionSpec& precision) { return accumulator_of(storage_types(precision).compute); }

std::int64_t micro_samples(const Replica::Options& o, const Communicator& ranks) {
  const LayoutSpec& l = o.layout;
  LOCKSTEP_CHECK(l.dp == ranks.size(), "{} ranks for dp = {}", ranks.size(), l.dp);
  LOCKSTEP_CHECK(l.micro >= 1 && o.B % l.micro == 0 && o.B / l.micro >= l.dp,
                 "{} samples for {} ranks in {} micro-batches", o.B, l.dp, l.micro);
  return share_of(o.B, l, ranks.rank()).count / l.micro;
}

// A real stream knows what it runs on. Rounds of central losses are the same on all ranks: rank 0 has the most tokens.
Execution execution(const Replica::Options& options, const Stream& stream) {
  Execution how = options.how;
  if (stream.device() != Device::meta) how.runs_on = stream.device();
  if (options.layout.dp_kind == DpKind::central)
    how.loss_tokens = share_of(options.B, options.layout, 0).count / options.layout.micro * options.T;
  return how;
}

std::vector<Action> checked_actions(const Replica::Options& options, const Model& model) {
  StepShape shape = model.step_shape(static_cast<int>(options.layout.micro));
  shape.publishes = options.layout.dp_kind == DpKind::central;
  std::vector<Action> actions = options.actions.empty() ? serial_step(shape) : options.actions;
  const auto fault = find_fault(actions, shape);
  LOCKSTEP_CHECK(!fault, "the list of actions is no step: {}", *fault);
  return actions;
}

GradientBuckets gradient_buckets(const Replica::Options& options, const Model& model,
                                 const std::vector<Action>& actions, Communicator& ranks, Memory& memory) {
  const LayoutSpec& l = options.layout;
  std::vector<const UnitLayout*> layouts;
  for (int u = 0; u < model.units(); ++u) layouts.push_back(&model.unit(u).layout());
  std::vector<int> order;
  for (const Action& action : actions)
    if (action.kind == ActionKind::reduce) order.push_back(action.unit);
  const bool central = l.dp_kind == DpKind::central;
  return {layouts,
          order,
          {.dtype = storage_types(options.precision).gradient,
           .bytes = l.bucket << 20,
           .overlap = l.overlap == Switch::on && !central,
           .algorithm = algorithm_of(l.reduce),
           .root = central ? std::optional(0) : std::nullopt},
          ranks,
          memory};
}

BatchBuffers::Sizes batch_sizes(const Replica::Options& o, int rank) {
  const Share own = share_of(o.B, o.layout, rank);
  const std::int64_t losses = o.layout.dp_kind == DpKind::ddp ? own.count : rank == 0 ? o.B : 0;
  return {.first = own.first,
          .B = own.count,
          .T = o.T,
          .micro = static_cast<int>(o.layout.micro),
          .sums = sums_type(o.precision),
          .loss_B = losses};
}

}  // namespace

Replica::Replica(const Options& options, Memory& memory, Stream& stream)
    : Replica(options, {std::make_unique<Alone>(stream.device()), std::make_unique<Alone>(host_of(stream.device()))},
              nullptr, memory, stream) {}

Replica::Replica(const Options& options, const Ranks& ranks, Memory& memory, Stream& stream)
    : Replica(options, {}, &ranks, memory, stream) {}

Replica::Replica(const Options& options, std::array<std::unique_ptr<Communicator>, 2> alone, const Ranks* ranks,
                 Memory& memory, Stream& stream)
    : options_(options),
      alone_(std::move(alone)),
      ranks_(ranks ? *ranks : Ranks{*alone_[0], *alone_[1]}),
      memory_(memory),
      stream_(stream),
      model_(options.spec, micro_samples(options, ranks_.hosts), options.T, storage_types(options.precision).compute,
             execution(options, stream)),
      actions_(checked_actions(options, model_)),
      gradients_(gradient_buckets(options, model_, actions_, ranks_.replicas, memory)),
      batch_(options.spec, batch_sizes(options, ranks_.hosts.rank()), ranks_.hosts, memory, stream) {
  const StorageTypes types = storage_types(options.precision);
  for (int u = 0; u < model_.units(); ++u)
    storage_.emplace_back(model_.unit(u).layout(),
                          UnitStorage::Options{.types = types,
                                               .optimizer = options.optimizer,
                                               .gradient = gradients_.of(u),
                                               .updates = !central() || ranks_.hosts.rank() == 0},
                          memory, stream);
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
  activations_ = StepActivations(model_.slots(), actions_, micros(), memory);
  if (central()) {
    CentralLoss::Sizes sizes{.tokens = {},
                             .micro = micros(),
                             .chunk = model_.head().chunk(),
                             .vocabulary = options.spec.vocabulary,
                             .sums = sums_type(options.precision),
                             .compute = types.compute};
    for (int r = 0; r < ranks_.hosts.size(); ++r)
      sizes.tokens.push_back(share_of(options.B, options.layout, r).count / micros() * options.T);
    central_loss_.emplace(sizes, ranks_.replicas, memory);
    dealt_.resize(static_cast<std::size_t>(own().count * options.T));
  }
  bins_ = memory.allocate(kNormBins * 8, Tag::workspace);
  control_ = memory.allocate(kStepControls * 8, Tag::workspace);
  for (InFlight& flight : flights_) {
    flight.rate = HostBuffer(8, stream);
    flight.controls = HostBuffer(kStepControls * 8, stream);
    flight.done = stream.make_event();
  }
  // Messages between ranks are not captured. Masks of dropout are keyed on a number that the host gives out, another
  // one for each step.
  repeats_ = options.capture && ranks_.replicas.size() == 1 && options.spec.dropout == 0 &&
             options.spec.attention_dropout == 0;
  write_controls();
}

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
      all.push_back({piece.tensor, piece.of(storage_[u].flat_master()), piece.of(storage_[u].flat_gradient())});
    });
  return all;
}

std::vector<StateTensor> Replica::state() const {
  std::vector<StateTensor> all;
  for (const UnitStorage& unit : storage_)
    if (unit.updates())
      unit.each_piece([&](const UnitStorage::Piece& piece) {
        all.push_back({.part = "weight", .tensor = piece.tensor, .live = piece.of(unit.flat_master())});
        for (const auto& [name, flat] : unit.optimizer_state())
          all.push_back({.part = std::string(name), .tensor = piece.tensor, .live = piece.of(flat)});
      });
  return all;
}

void Replica::init_weights() {
  for (UnitStorage& unit : storage_)
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      const Tensor part = piece.of(unit.flat_master());
      const std::uint64_t key = random_key(options_.seed, "init/" + piece.tensor.name);
      if (piece.parameter.init == Init::normal)
        init_normal({.x = part, .key = key, .std = piece.parameter.init_std}, stream_);
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
    upload_floats(all[i].master, values[i].raw(), values[i].dtype(), stream_);
  }
  publish();
}

// Weights everywhere become what the masters say.
void Replica::publish() {
  for (UnitStorage& unit : storage_) {
    unit.publish(stream_);
    if (central()) ranks_.replicas.broadcast(unit.flat_weight(), 0)->wait();
  }
}

void Replica::resume(std::int64_t batches, std::int64_t updates) {
  publish();
  batches_done_ = batches;
  steps_done_ = updates;
  write_controls();
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
      Batch batch = batch_.micro_batch(action.micro, seed, training);
      if (central()) {
        batch.central = &*central_loss_;
        batch.central_targets = batch_.central_targets();
      }
      return run_phase(model_.unit(action.unit), action.kind, call(action, batch));
    }
    case ActionKind::reduce:
      return reduce(action.unit);
    case ActionKind::norm:
      return take_norm();
    case ActionKind::update:
      return storage_[action.unit].update(control(), stream_);
    case ActionKind::publish:
      return ranks_.replicas.broadcast(storage_[action.unit].flat_weight(), 0)->wait();
  }
}

// The two homes of a tied weight's gradient become one, and this rank's gradient that of the global batch. Every target
// has the weight of the global batch already, so the ranks' parts are summed.
void Replica::reduce(int unit) {
  if (const Model::Tie* tie = model_.tie(); tie && unit == tie->owner_unit) {
    const Tensor owner = storage_[tie->owner_unit].gradient(tie->owner_parameter);
    add({.y = owner, .a = owner, .b = storage_[tie->borrower_unit].gradient(tie->borrower_parameter)}, stream_);
  }
  gradients_.whole(unit);
}

void Replica::take_norm() {
  gradients_.wait();
  const Tensor bins = view(bins_, DType::i64, {kNormBins});
  if (storage_[0].updates()) {
    for (std::size_t u = 0; u < storage_.size(); ++u)
      norm_sum({.bins = bins, .x = storage_[u].flat_gradient(), .accumulate = u > 0}, stream_);
    step_control(
        {.control = control(), .bins = bins, .clip = options_.optimizer.clip, .halt = options_.halt_on_bad_value},
        stream_);
  }
  if (central()) ranks_.replicas.broadcast(control(), 0)->wait();
}

Share Replica::given() const {
  if (!central()) return own();
  return {0, ranks_.hosts.rank() == 0 ? options_.B : 0};
}

// Where rank 0 has the whole batch, every rank gets its tokens from it; the targets stay.
void Replica::set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place) {
  if (central()) {
    LOCKSTEP_CHECK(std::ssize(tokens) == given().count * options_.T, "{} tokens for {} samples", tokens.size(),
                   given().count);
    const Device device = ranks_.hosts.device();
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks_.hosts.size(); ++r)
      counts.push_back(share_of(options_.B, options_.layout, r).count * options_.T);
    const ConstTensor all =
        tokens.empty() ? ConstTensor{} : ConstTensor(tokens.data(), DType::i32, device, {std::ssize(tokens)});
    ranks_.hosts.scatter(Tensor(dealt_.data(), DType::i32, device, {std::ssize(dealt_)}), all, 0, counts)->wait();
    tokens = dealt_;
  }
  batch_.set(tokens, targets, place, stream_);
}

double Replica::compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  LOCKSTEP_CHECK(steps_in_flight() == 0, "{} steps are in flight", steps_in_flight());
  set_batch(tokens, targets, 0);
  for (std::size_t i = 0; i < norm_at_; ++i) run(actions_[i], true, batches_done_);
  gradients_.wait();
  batch_.fetch_losses(0, stream_);
  stream_.synchronize();
  ranks_.replicas.check();
  last_loss_ = batch_.mean_loss(0);
  return last_loss_;
}

Replica::Result Replica::apply_gradients() {
  upload(control().slice(0, kLearningRate, 1), &options_.optimizer.learning_rate, stream_);
  for (std::size_t i = norm_at_; i < actions_.size(); ++i) run(actions_[i], true, batches_done_);
  double host[kStepControls] = {};
  download(host, control(), stream_);
  ranks_.replicas.check();
  const bool updated = host[kFinite] != 0;
  if (updated) ++steps_done_;
  ++batches_done_;
  return {last_loss_, host[kNorm], updated};
}

// The first time action by action, as libraries and code are loaded then; the second time captured, where that is of
// use; from then on as a whole.
void Replica::run_step(std::int64_t batch_number) {
  const auto all = [&] {
    for (const Action& action : actions_) {
      if (stream_.runs_ahead()) stream_.begin_range(to_string(action).c_str());
      run(action, true, batch_number);
      if (stream_.runs_ahead()) stream_.end_range();
    }
  };
  if (!replay_ && repeats_ && begun_ > 0) replay_ = stream_.capture(all);
  if (replay_)
    replay_->run();
  else
    all();
}

void Replica::begin_step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  LOCKSTEP_CHECK(steps_in_flight() < kStepsInFlight, "{} steps are in flight", steps_in_flight());
  const int place = static_cast<int>(begun_ % kStepsInFlight);
  InFlight& flight = flights_[place];
  set_batch(tokens, targets, place);
  flight.rate.as<double>()[0] = options_.optimizer.learning_rate;
  upload_later(control().slice(0, kLearningRate, 1), flight.rate.as<char>().data(), stream_);
  run_step(batches_done_ + steps_in_flight());
  batch_.fetch_losses(place, stream_);
  download_later(flight.controls.as<char>().data(), control(), stream_);
  stream_.record(*flight.done);
  ++begun_;
}

Replica::Result Replica::finish_step() {
  LOCKSTEP_CHECK(steps_in_flight() > 0, "no step is in flight");
  const int place = static_cast<int>(finished_ % kStepsInFlight);
  InFlight& flight = flights_[place];
  flight.done->wait();
  ranks_.replicas.check();  // else what has come may be of ranks that never summed
  ++finished_;
  const std::span<double> controls = flight.controls.as<double>();
  const bool updated = controls[kFinite] != 0;
  if (updated) ++steps_done_;
  ++batches_done_;
  return {batch_.mean_loss(place), controls[kNorm], updated};
}

Replica::Result Replica::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  begin_step(tokens, targets);
  return finish_step();
}

double Replica::evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         std::span<double> logits) {
  LOCKSTEP_CHECK(steps_in_flight() == 0, "{} steps are in flight", steps_in_flight());
  set_batch(tokens, targets, 0);
  const std::int64_t V = options_.spec.vocabulary, rows = own().count / micros() * options_.T;
  LOCKSTEP_CHECK(logits.empty() || std::ssize(logits) == micros() * rows * V, "room for {} logits of {}", logits.size(),
                 micros() * rows * V);
  Buffer whole;
  if (!logits.empty()) whole = memory_.allocate(rows * V * size_of(sums_type(options_.precision)), Tag::workspace);
  for (const Action& action : forward_pass(model_.step_shape(micros()))) {
    run(action, false, batches_done_);
    if (logits.empty() || action.unit != model_.units() - 1) continue;
    const Tensor out = view(whole, sums_type(options_.precision), {rows, V});
    model_.head().logits(out, 0, call(action, batch_.micro_batch(action.micro, 0, false)));
    const std::vector<double> values = to_doubles(out, stream_);
    std::ranges::copy(values, logits.begin() + action.micro * rows * V);
  }
  batch_.fetch_losses(0, stream_);
  stream_.synchronize();
  ranks_.replicas.check();
  return batch_.mean_loss(0);
}

}  // namespace lockstep
