#include "train/replica.h"

#include <algorithm>
#include <functional>

#include "base/philox.h"
#include "comm/single_rank.h"
#include "parallel/reduce_kind.h"

namespace lockstep {

namespace {

Device host_of(Device device) { return device == Device::meta ? Device::meta : Device::cpu; }

DType sums_type(const PrecisionSpec& precision) { return accumulator_of(storage_types(precision).compute); }

std::int64_t micro_samples(const Replica::Options& o, const Communicator& ranks) {
  const LayoutSpec& l = o.layout;
  LOCKSTEP_CHECK(l.ranks() == ranks.size(), "{} ranks for dp = {}, pp = {}, cp = {}, tp = {}", ranks.size(), l.dp, l.pp,
                 l.cp, l.tp);
  LOCKSTEP_CHECK(l.micro >= 1 && o.B % l.micro == 0 && o.B / l.micro >= l.dp,
                 "{} samples for {} ranks in {} micro-batches", o.B, l.dp, l.micro);
  return share_of(o.B, l, l.dp_rank(ranks.rank())).count / l.micro;
}

// A real stream knows what it runs on. Rounds of central losses are the same on all ranks: rank 0 has the most tokens.
Execution execution(const Replica::Options& options, const Communicator& ranks, const Stream& stream) {
  Execution how = options.how;
  how.split = options.layout.tensor_split(ranks.rank());
  how.context = options.layout.context_split(ranks.rank());
  how.weights_later = weights_come_later(options.layout);
  if (stream.device() != Device::meta) how.runs_on = stream.device();
  if (options.layout.dp_kind == DpKind::central && how.loss_tokens == 0)
    how.loss_tokens = share_of(options.B, options.layout, 0).count / options.layout.micro * options.T;
  return how;
}

// By unit; those that are not here have nothing.
std::vector<const UnitLayout*> layouts_of(const Model& model, const std::function<bool(int unit)>& here) {
  static const UnitLayout kNothing("");
  std::vector<const UnitLayout*> layouts;
  for (int u = 0; u < model.units(); ++u) layouts.push_back(here(u) ? &model.unit(u).layout() : &kNothing);
  return layouts;
}
std::vector<const UnitLayout*> layouts_of(const Model& model, const StepShape& shape) {
  return layouts_of(model, [&](int u) { return shape.has(u); });
}

RankStep rank_step_of(const Replica::Options& o, const Model& model, const Communicator& ranks, const Stream& stream) {
  return rank_step({.model = model,
                    .layout = o.layout,
                    .stage = static_cast<int>(o.layout.stage(ranks.rank())),
                    .samples = share_of(o.B, o.layout, 0).count / o.layout.micro,
                    .seq = o.T,
                    .runs_on = stream.device() == Device::meta ? o.how.runs_on : stream.device(),
                    .kept_bytes = o.how.memory.gathered << 20,
                    .actions = o.actions,
                    .lists = o.lists});
}

bool overlaps(const LayoutSpec& l) { return l.overlap == Switch::on && l.dp_kind == DpKind::ddp; }

TensorParallel::Options tensor_options(const LayoutSpec& l, const Communicator& ranks) {
  return {.split = l.tensor_split(ranks.rank()), .overlap = overlaps(l), .algorithm = algorithm_of(l.reduce)};
}

Gradients::Options gradient_options(const Replica::Options& options, const Model& model, const RankStep& step,
                                    PartialGradients& partial) {
  std::optional<TiedParameter> tie;
  if (const Model::Tie* t = model.tie(); t && (step.shape.has(t->owner_unit) || step.shape.has(t->borrower_unit)))
    tie = {.owner_unit = t->owner_unit,
           .owner_parameter = t->owner_parameter,
           .borrower_unit = t->borrower_unit,
           .borrower_parameter = t->borrower_parameter,
           .owner = &model.unit(t->owner_unit).layout(),
           .has_owner = step.shape.has(t->owner_unit),
           .has_borrower = step.shape.has(t->borrower_unit)};
  return {.layouts = layouts_of(model, step.shape),
          .tie = tie,
          .actions = step.actions,
          .dtype = storage_types(options.precision).gradient,
          .overlap = overlaps(options.layout),
          .complete = [&partial](int unit, const Tensor& flat) { partial.sum(unit, flat); },
          .algorithm = algorithm_of(options.layout.reduce)};
}

// Room for what travels, where there is attention.
std::optional<ContextParallel::Options> context_options(const Replica::Options& o, const Model& model,
                                                        const StepShape& shape, int rank) {
  bool attends = false;
  for (int u = 1; u + 1 < model.units(); ++u) attends |= shape.has(u);
  if (o.layout.cp == 1 || !attends) return std::nullopt;
  const HeadSplit heads(o.spec.heads, o.spec.kv_heads, o.layout.tensor_split(rank));
  return ContextParallel::Options{.split = o.layout.context_split(rank),
                                  .overlap = overlaps(o.layout),
                                  .sizes = {.B = model.B(),
                                            .T = o.T,
                                            .heads = heads.queries.each,
                                            .keys = heads.keys.each,
                                            .width = o.spec.head_width,
                                            .dtype = model.dtype()}};
}

BatchBuffers::Sizes batch_sizes(const Replica::Options& o, int rank, bool has_head) {
  const Share own = share_of(o.B, o.layout, o.layout.dp_rank(rank));
  const std::int64_t losses = o.layout.dp_kind == DpKind::ddp ? own.count : rank == 0 ? o.B : 0;
  return {.first = own.first,
          .B = own.count,
          .T = o.T,
          .micro = static_cast<int>(o.layout.micro),
          .sums = sums_type(o.precision),
          .loss_B = losses,
          .has_head = has_head,
          .context = o.layout.context_split(rank)};
}

}  // namespace

Replica::Replica(const Options& options, Memory& memory, Stream& stream)
    : Replica(options,
              {std::make_unique<SingleRank>(stream.device()), std::make_unique<SingleRank>(host_of(stream.device()))},
              nullptr, memory, stream) {}

Replica::Replica(const Options& options, const Ranks& ranks, Memory& memory, Stream& stream)
    : Replica(options, {}, &ranks, memory, stream) {}

Replica::Replica(const Options& options, std::array<std::unique_ptr<Communicator>, 2> alone, const Ranks* ranks,
                 Memory& memory, Stream& stream)
    : options_(options),
      alone_(std::move(alone)),
      ranks_(ranks ? *ranks : Ranks{*alone_[0], *alone_[1]}),
      mesh_(ranks_.replicas, options.layout),
      mesh_hosts_(ranks_.hosts, options.layout),
      tensor_(mesh_.tensor(), tensor_options(options.layout, ranks_.hosts)),
      memory_(memory),
      stream_(stream),
      shared_model_(options.model
                        ? options.model
                        : std::make_shared<const Model>(
                              options.spec, micro_samples(options, ranks_.hosts),
                              options.layout.context_split(ranks_.hosts.rank()).tokens(options.T),
                              storage_types(options.precision).compute, execution(options, ranks_.hosts, stream))),
      model_(*shared_model_),
      step_(rank_step_of(options, model_, ranks_.hosts, stream)),
      links_(mesh_.pipeline()),
      groups_(mesh_.replicas(), options.layout),
      seen_by_others_(memory.device() == Device::cpu ? ranks_.replicas.memory(memory.ledger()) : nullptr),
      partial_(layouts_of(model_, step_.shape), mesh_.tensor(), algorithm_of(options.layout.reduce)),
      gradients_(make_gradients(gradient_options(options, model_, step_, partial_), options.layout, groups_,
                                sent_memory(), stream)),
      batch_(options.spec, batch_sizes(options, ranks_.hosts.rank(), has(model_.units() - 1)),
             {mesh_hosts_.replicas(), mesh_hosts_.pipeline()}, memory, stream) {
  const StorageTypes types = storage_types(options.precision);
  if (const auto context = context_options(options, model_, step_.shape, ranks_.hosts.rank()))
    context_.emplace(mesh_.context(), *context, sent_memory());
  const auto held = [&](int u) { return has(u) || step_.shape.has_copy(u); };
  for (int u = 0; u < model_.units(); ++u)
    if (held(u))
      storage_.try_emplace(u, model_.unit(u).layout(),
                           ZeroShard::Options{.types = types,
                                              .optimizer = options.optimizer,
                                              .updates = has(u) && (!central() || dp_rank() == 0),
                                              .cut = groups_.cut(),
                                              .whole_weights = !options.layout.cuts_weights(),
                                              .weights_in = groups_.cuts() ? &sent_memory() : nullptr},
                           memory, stream);
  weights_.emplace(ZeroWeights::Options{.layouts = layouts_of(model_, held),
                                        .step = step_.actions,
                                        .evaluation = step_.evaluation,
                                        .overlap = overlaps(options.layout),
                                        .root = central() ? std::optional(0) : std::nullopt},
                   storage_, groups_, sent_memory());
  tensors_of_.resize(static_cast<std::size_t>(model_.units()));
  for (int u = 0; u < model_.units(); ++u) {
    if (!has(u)) continue;
    const auto& parameters = model_.unit(u).layout().parameters();
    tensors_of_[u].weights.resize(parameters.size());
    for (int p = 0; p < static_cast<int>(parameters.size()) && !options.layout.cuts_weights(); ++p)
      tensors_of_[u].weights[p] = parameters[p].tied
                                      ? storage_.at(model_.tie()->owner_unit).weight(model_.tie()->owner_parameter)
                                      : storage_.at(u).weight(p);
  }
  while (actions()[norm_at_].kind != ActionKind::norm) ++norm_at_;
  // Where the model is cut, activations are what is sent.
  const bool sends = options.layout.tp > 1 || options.layout.pp > 1 || options.layout.cp > 1;
  activations_ =
      StepActivations(model_.slots(), actions(), step_.evaluation, step_.shape, sends ? sent_memory() : memory);
  if (central()) {
    CentralDp::Sizes sizes{.tokens = {},
                           .micro = micros(),
                           .chunk = model_.head().chunk(),
                           .vocabulary = options.spec.vocabulary,
                           .sums = sums_type(options.precision),
                           .compute = types.compute};
    for (int r = 0; r < ranks_.hosts.size(); ++r)
      sizes.tokens.push_back(share_of(options.B, options.layout, r).count / micros() * options.T);
    central_loss_.emplace(sizes, ranks_.replicas, memory);
    if (stream.device() != Device::meta) dealt_.resize(static_cast<std::size_t>(own().count * options.T));
  }
  norm_.emplace(storage_, *gradients_, memory);
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

Call Replica::call(const Action& action, const Batch& batch) const {
  // The first micro-batch starts the gradients, the others add to them: sums over micro-batches ascend in any list.
  return {.unit = tensors_of_[action.unit],
          .at = activations(action.micro, batch.training),
          .batch = batch,
          .stream = stream_,
          .accumulate = gradients_->adds(action.micro),
          .tensor = &tensor_,
          .context = context_ ? &*context_ : nullptr};
}

void Replica::run(const Action& action, bool training, std::int64_t batch_number) {
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return run_phase_of(action, training, batch_number);
    case ActionKind::gather:
      return gather(action.unit);
    case ActionKind::release:
      return weights_->release(action.unit);
    case ActionKind::reduce:
      links_.ready({ActionKind::receive_tied_gradient, action.unit});
      return gradients_->whole(action.unit, action.micro);
    case ActionKind::norm:
      return take_norm();
    case ActionKind::update:
      return storage_.at(action.unit).update(gradients_->reduced(action.unit), control(), stream_);
    case ActionKind::publish:
      links_.ready({ActionKind::receive_tied_weight, step_.shape.tie_borrower});
      return weights_->publish(action.unit);
    default:
      return exchange(action, training);
  }
}

// What a message between stages carries.
Tensor Replica::handed_on(const Action& action, bool training) const {
  const Between& between = model_.between(action.unit);
  switch (action.kind) {
    case ActionKind::receive_input:
      return activations(action.micro, training)[between.x];
    case ActionKind::send_output:
      return activations(action.micro, training)[between.y];
    case ActionKind::receive_output_gradient:
      return activations(action.micro, training)[between.dy];
    case ActionKind::send_input_gradient:
      return activations(action.micro, training)[between.dx];
    case ActionKind::send_tied_gradient:
    case ActionKind::receive_tied_gradient:
      return gradients_->tied();
    default:  // tied weights: what this rank updates of them, and has to get
      return storage_.at(step_.shape.tie_owner).own_weight();
  }
}

void Replica::exchange(const Action& action, bool training) {
  const int other = other_end(action, step_.shape);
  const Tensor tensor = handed_on(action, training);
  if (is_send(action.kind))
    links_.send(tensor, other);
  else
    links_.receive(action, tensor, other);
}

void Replica::run_phase_of(const Action& action, bool training, std::int64_t batch_number) {
  if (action.kind == ActionKind::forward) {
    links_.ready({ActionKind::receive_input, action.unit, action.micro});
    if (action.unit == step_.shape.tie_borrower) links_.ready({ActionKind::receive_tied_weight, action.unit});
  }
  if (action.kind == ActionKind::backward_input)
    links_.ready({ActionKind::receive_output_gradient, action.unit, action.micro});
  for (const int unit : units_read(action, step_.shape)) weights_->ready(unit);
  if (watch_) watch_->runs(action);
  const bool last = action.unit == model_.units() - 1;
  if (training && (action.kind == ActionKind::backward_weight || (action.kind == ActionKind::forward && last)))
    tensors_of_[action.unit].gradients = gradients_->open(action.unit, action.micro);
  const std::uint64_t seed = random_key(options_.seed, "dropout") + static_cast<std::uint64_t>(batch_number);
  Batch batch = batch_.micro_batch(action.micro, seed, training);
  if (central()) {
    batch.central = &*central_loss_;
    batch.central_targets = batch_.central_targets();
  }
  const Call phase = call(action, batch);
  if (counter_ && counter_->has_counted(action, phase.accumulate)) return;
  run_phase(model_.unit(action.unit), action.kind, phase);
  if (counter_) counter_->has_run(action, phase.accumulate);
}

// The unit's phases compute with what is gathered, and those of a unit whose weight is tied to it.
void Replica::gather(int unit) {
  if (step_.shape.has_copy(unit)) links_.ready({ActionKind::receive_tied_weight, step_.shape.tie_borrower});
  const Tensor flat = weights_->gather(unit);
  const UnitLayout& layout = model_.unit(unit).layout();
  for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p) {
    const StoredParameter& stored = layout.parameters()[p];
    if (stored.tied) continue;
    const Tensor weight = flat.slice(0, layout.offset(p), stored.elements()).reshape(Shape(std::span(stored.shape)));
    if (has(unit)) tensors_of_[unit].weights[p] = weight;
    if (const Model::Tie* tie = model_.tie();
        tie && unit == tie->owner_unit && p == tie->owner_parameter && has(tie->borrower_unit))
      tensors_of_[tie->borrower_unit].weights[tie->borrower_parameter] = weight;
  }
}

void Replica::take_norm() {
  links_.settle();
  gradients_->wait();
  if (!central() || dp_rank() == 0)
    step_control({.control = control(),
                  .bins = norm_->sum(groups_, mesh_.tensor(), mesh_.pipeline(), stream_),
                  .clip = options_.optimizer.clip,
                  .halt = options_.halt_on_bad_value},
                 stream_);
  if (central()) ranks_.replicas.broadcast(control(), 0)->wait();
}

}  // namespace lockstep
