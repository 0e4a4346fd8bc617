#include "train/step_executor.h"

#include <algorithm>

#include "base/philox.h"
#include "parallel/reduce_kind.h"
#include "tensor/side_stream.h"

namespace lockstep {

namespace {

// Room for what travels, where there is attention.
std::optional<ContextParallel::Options> context_options(const RankSetup& setup) {
  const RankSetup::Options& o = setup.options;
  bool attends = false;
  for (int u = 1; u + 1 < setup.model.units(); ++u) attends |= setup.has(u);
  if (o.layout.cp == 1 || !attends || setup.dp->serves()) return std::nullopt;
  const HeadSplit heads(o.spec.heads, o.spec.kv_heads, o.layout.tensor_split(setup.rank()));
  return ContextParallel::Options{.split = o.layout.context_split(setup.rank()),
                                  .overlap = setup.dp->overlaps(),
                                  .sizes = {.B = setup.model.B(),
                                            .T = setup.model.T() * o.layout.cp,
                                            .heads = heads.queries.each,
                                            .keys = heads.keys.each,
                                            .width = o.spec.head_width,
                                            .dtype = setup.model.dtype()}};
}

BatchBuffers::Sizes batch_sizes(const RankSetup& setup) {
  const RankSetup::Options& o = setup.options;
  const Share own = setup.dp->own();
  return {.first = own.first,
          .B = own.count,
          .T = o.T,
          .micro = static_cast<int>(o.layout.micro),
          .sums = setup.sums(),
          .loss_B = setup.dp->loss_samples(),
          .has_head = setup.has(setup.model.units() - 1),
          .scaled = o.precision.loss_scale.kind != LossScale::Kind::none,
          .overlaps = setup.step.unflushed.has_value(),
          .by_micro_batch = setup.step.unflushed && !setup.step.unflushed->stage.accumulates(),
          .context = o.layout.context_split(setup.rank()),
          .documents = o.how.documents != nullptr,
          .varlen = o.how.varlen,
          .least_tokens = RankSetup::least_tokens(o.layout),
          .expected_tokens = o.how.varlen && setup.on_meta() && own.count > 0 ? setup.row_of_documents()->length() : 0};
}

StepActivations make_activations(const RankSetup& setup, Memory& memory) {
  const Slots& slots = setup.model.slots();
  const auto& [shape, schedule, actions, evaluation, unflushed, lists] = setup.step;
  if (unflushed) return StepActivations(slots, unflushed->turn, evaluation, shape, memory);
  return StepActivations(slots, actions, evaluation, shape, memory);
}

// Where layers, samples or the depth are split, activations are sent.
Memory& activation_memory(const RankSetup& setup) {
  const LayoutSpec& l = setup.options.layout;
  return l.tp > 1 || l.pp > 1 || l.cp > 1 ? setup.sent_memory() : setup.memory;
}

// Messages between ranks are not captured, nor are copies in other streams that come beside the next step. Masks of
// dropout are keyed on a number that the host gives out, another one for each step. Under [sparsity] a mask step lays
// out anew what updates read. Without padding, steps have other sizes each time.
bool steps_repeat(const RankSetup& setup) {
  const RankSetup::Options& o = setup.options;
  return o.capture && !o.how.varlen && !setup.step.unflushed && setup.ranks.replicas.size() == 1 &&
         o.spec.dropout == 0 && o.spec.attention_dropout == 0 && o.how.memory.offloads_to() == Offload::none &&
         !o.sparsity;
}

// Every tensor between units has this shape.
std::optional<ActivationCodes::Options> code_options(const RankSetup& setup) {
  const StepShape& shape = setup.step.shape;
  if (!setup.options.sync.compress_activations || shape.stages.count() == 1 || setup.dp->serves()) return std::nullopt;
  const SlotSpec& between = setup.model.slots().all()[static_cast<std::size_t>(setup.model.between(1).x)];
  return ActivationCodes::Options{.form = setup.options.sync.compress_activations,
                                  .rows = between.shape[0],
                                  .width = between.shape[1],
                                  .dtype = between.dtype,
                                  .actions = setup.step.actions,
                                  .shape = shape};
}

std::vector<ActivationOffload::Move> moves_of(const StepActivations& activations) {
  std::vector<ActivationOffload::Move> moves;
  for (const StepActivations::Move& m : activations.moves())
    moves.push_back({.out = m.out, .begin = m.begin, .end = m.end, .here = m.here, .there = m.elsewhere});
  return moves;
}

TimeUse use_of(ActionKind kind) {
  return kind >= ActionKind::norm && kind <= ActionKind::stash ? TimeUse::optimizer : TimeUse::compute;
}

}  // namespace

StepExecutor::StepExecutor(RankSetup& setup, RankState& state)
    : setup_(setup),
      state_(state),
      stream_(setup.stream),
      tensor_(setup.mesh.tensor(), {.split = setup.options.split(setup.rank()),
                                    .overlap = setup.dp->overlaps(),
                                    .algorithm = algorithm_of(setup.options.layout.reduce)}),
      links_(setup.mesh.pipeline()),
      batch_(setup.options.spec, batch_sizes(setup),
             {setup.mesh_hosts.replicas(), setup.mesh_hosts.others(), setup.mesh_hosts.pipeline()}, setup.memory,
             setup.stream),
      activations_(make_activations(setup, activation_memory(setup))),
      remote_loss_(setup.dp->make_remote_loss({.tensors = batch_.loss_tensors(),
                                               .tile = setup.model.head().tile(),
                                               .vocabulary = setup.options.spec.vocabulary,
                                               .sums = setup.sums(),
                                               .compute = setup.model.dtype()},
                                              setup.memory)),
      norm_(state.shards(), state.gradients(), setup.memory),
      window_(setup.step.unflushed ? std::optional<PipeDreamWindow>(setup.step.unflushed->stage) : std::nullopt),
      rates_(setup.step.unflushed ? setup.memory.allocate(BatchBuffers::kPlaces * 8, Tag::workspace) : Buffer()),
      alone_(setup.stream.device()),
      repeats_(steps_repeat(setup)) {
  if (const auto context = context_options(setup))
    context_.emplace(setup.mesh.context(), *context, setup.sent_memory());
  if (const auto codes = code_options(setup)) codes_.emplace(*codes, setup.sent_memory(), stream_);
  if (!activations_.moves().empty()) {
    LOCKSTEP_CHECK(setup.offload, "there is no memory to offload to");
    offload_.emplace(
        ActivationOffload::Options{.bytes = activations_.elsewhere_bytes(),
                                   .on_disk = setup.options.how.memory.offload_activations == Offload::disk,
                                   .rooms = setup.rooms},
        moves_of(activations_), *setup.offload, stream_);
  }
  while (setup.step.actions[norm_at_].kind != ActionKind::norm) ++norm_at_;
}

void StepExecutor::set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place) {
  batch_.set(setup_.dp->own_tokens(tokens), targets, place, stream_);
  place_ = place;
}

void StepExecutor::begin(bool training, std::int64_t batch_number) {
  training_ = training;
  batch_number_ = batch_number;
  if (training) batch_.scale_loss(state_.control(), stream_);
  if (training) state_.gradients().begin(batch_.host_tokens(place_));
  at_ = 0;
  if (codes_) codes_->begin();
  if (offload_ && training) offload_->begin();
  if (!training) {
    LOCKSTEP_CHECK(is_drained(), "the last backwards of step {} are still to come", batch_number);
    state_.use_current_weights();
  }
  state_.weights().begin(training);
}

// Some of the list may be left out (train/bad_values.h).
void StepExecutor::come_to(const Action& action) {
  if (!offload_ || !training_) return;
  while (setup_.step.actions.at(at_) != action) ++at_;
  offload_->reach(at_++);
}

void StepExecutor::run(const Action& action) {
  come_to(action);
  const StepShape& shape = setup_.step.shape;
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return run_phase_of(action);
    case ActionKind::gather:
      if (shape.has_copy(action.unit)) links_.ready({ActionKind::receive_tied_weight, shape.tie_borrower});
      state_.updated(action.unit);
      return state_.gather(action.unit);
    case ActionKind::release:
      return state_.weights().release(action.unit);
    case ActionKind::reduce:
      links_.ready({ActionKind::receive_tied_gradient, action.unit});
      return state_.gradients().whole(action.unit, micro_of_gradient(action.micro));
    case ActionKind::norm:
      return window_ ? run_own_norm(action) : run_norm();
    case ActionKind::update:
      update(action.unit);
      if (window_) state_.versions()->updated(action.unit, window_->version(action.version));
      return;
    case ActionKind::stash:
      return state_.versions()->stash(action.unit, window_->version(action.version));
    case ActionKind::publish:
      links_.ready({ActionKind::receive_tied_weight, shape.tie_borrower});
      state_.updated(action.unit);
      return state_.weights().publish(action.unit);
    default:
      return exchange(action);
  }
}

void StepExecutor::run_phase_of(const Action& action) {
  const Model& model = setup_.model;
  if (action.kind == ActionKind::forward) {
    arrive({ActionKind::receive_input, action.unit, action.micro});
    if (action.unit == setup_.step.shape.tie_borrower) links_.ready({ActionKind::receive_tied_weight, action.unit});
  }
  if (action.kind == ActionKind::backward_input)
    arrive({ActionKind::receive_output_gradient, action.unit, action.micro});
  for (const int unit : units_read(action, setup_.step.shape)) {
    state_.updated(unit);
    state_.weights().ready(unit);
  }
  if (window_ && training_) {
    state_.use_version(action.unit, window_->version(action.version));
    free_places(action);
  }
  if (watch_) watch_->runs(action);
  const bool last = action.unit == model.units() - 1;
  const bool writes =
      training_ && (action.kind == ActionKind::backward_weight ||
                    (action.kind == ActionKind::forward && last && setup_.step.shape.trains(action.unit)));
  if (writes) state_.open_gradients(action.unit, micro_of_gradient(action.micro));
  const int before = window_ ? window_->steps_before(action.micro) : 0;
  const std::uint64_t seed =
      random_key(setup_.options.seed, "dropout") + static_cast<std::uint64_t>(batch_number_ - before);
  Batch batch = batch_.micro_batch(window_ ? window_->of_step(action.micro) : action.micro, seed, training_, before);
  batch.remote_loss = remote_loss_.get();
  const Call phase = call(action, batch);
  if (!counter_ || !counter_->has_counted(action, phase.accumulate)) {
    run_phase(model.unit(action.unit), action.kind, phase);
    if (counter_) counter_->has_run(action, phase.accumulate);
  }
  if (writes) state_.close_gradients(action.unit);
}

Call StepExecutor::call(const Action& action, const Batch& batch) const {
  // The first micro-batch starts the gradients, the others add to them: sums over micro-batches ascend in any list.
  return {.unit = state_.unit(action.unit),
          .at = activations_at(action.micro),
          .batch = batch,
          .stream = stream_,
          .accumulate = state_.gradients().adds(micro_of_gradient(action.micro)),
          .tensor = &tensor_,
          .context = context_ ? &*context_ : nullptr};
}

void StepExecutor::logits(const Tensor& out, const Action& forward) {
  setup_.model.head().logits(out, 0, call(forward, batch_.micro_batch(forward.micro, 0, training_)));
}

// The gradients are those of the global batch from here on. The ranks that update find norm, clipping factor and
// whether to update at all.
void StepExecutor::run_norm() {
  links_.settle();
  state_.gradients().wait();
  state_.mask_gradients();
  const auto each_window = [&](int unit, const GlobalNorm::Window& window) {
    state_.each_gradient_window(unit, window);
  };
  const LossScale& scale = setup_.options.precision.loss_scale;
  if (setup_.dp->updates())
    step_control({.control = state_.control(),
                  .bins = norm_.sum(setup_.groups, setup_.mesh.tensor(), setup_.mesh.pipeline(), stream_, each_window),
                  .clip = setup_.options.optimizer.clip,
                  .halt = setup_.options.halt_on_bad_value,
                  .beta1 = setup_.options.optimizer.beta1,
                  .beta2 = setup_.options.optimizer.beta2,
                  .growth = scale.kind == LossScale::Kind::dynamic ? scale.growth : 0,
                  .most_exponent = LossScale::kMost},
                 stream_);
  setup_.dp->share_control(state_.control());
  state_.hold_control();
}

void StepExecutor::update(int unit) {
  if (hashes_) hashes_->before_update(unit);
  state_.update(unit);
  if (hashes_) hashes_->after_update(unit);
}

// What the phase writes over was sent for the micro-batch that had its place before.
void StepExecutor::free_places(const Action& phase) {
  const StepShape& shape = setup_.step.shape;
  const int others = window_->stage().in_flight() - 1;
  if (phase.kind == ActionKind::forward && shape.goes(phase.unit))
    links_.keep_at_most(others, shape.stage_of(phase.unit + 1));
  // The last unit's forward makes the gradient of its input too.
  const bool makes_gradient =
      phase.kind == ActionKind::backward_input || (phase.kind == ActionKind::forward && phase.unit == shape.last());
  if (makes_gradient && shape.comes(phase.unit)) links_.keep_at_most(others, shape.stage_of(phase.unit - 1));
}

Tensor StepExecutor::learning_rate(int place) const {
  if (window_) return view(rates_, DType::f64, {1}, place);
  return state_.control().slice(0, kLearningRate, 1);
}

// The stage's own norm of a micro-batch's gradient, or of the step's that ends with it, for the learning rate of its
// step. The first bad value ends all updates of the stage, whatever the run says: others have not heard of it.
void StepExecutor::run_own_norm(const Action& action) {
  state_.gradients().wait();
  const int place = (place_ + window_->steps_before(action.micro)) % BatchBuffers::kPlaces;
  if (!setup_.on_meta())
    copy_later(state_.control().slice(0, kLearningRate, 1).raw(), learning_rate(place).raw(), 8, stream_);
  step_control({.control = state_.control(),
                .bins = norm_.sum(setup_.groups, setup_.mesh.tensor(), alone_, stream_),
                .clip = setup_.options.optimizer.clip,
                .halt = true,
                .beta1 = setup_.options.optimizer.beta1,
                .beta2 = setup_.options.optimizer.beta2},
               stream_);
}

// What a message between stages carries.
Tensor StepExecutor::message(const Action& action) const {
  const Between& between = setup_.model.between(action.unit);
  switch (action.kind) {
    case ActionKind::receive_input:
      return activations_at(action.micro)[between.x];
    case ActionKind::send_output:
      return activations_at(action.micro)[between.y];
    case ActionKind::receive_output_gradient:
      return activations_at(action.micro)[between.dy];
    case ActionKind::send_input_gradient:
      return activations_at(action.micro)[between.dx];
    case ActionKind::send_tied_gradient:
    case ActionKind::receive_tied_gradient:
      return state_.gradients().tied();
    default:
      return state_.tied_weight();
  }
}

void StepExecutor::exchange(const Action& action) {
  const int other = other_end(action, setup_.step.shape);
  if (action.kind == ActionKind::send_tied_weight) state_.updated(action.unit);
  const Tensor tensor = message(action);
  const bool coded = codes_ && training_ && is_handed_on(action.kind) && tensor.elements() > 0;
  if (is_send(action.kind)) {
    if (coded) links_.make_room(other);
    links_.send(coded ? codes_->encode(tensor, other) : tensor, other);
  } else {
    links_.receive(action, coded ? codes_->room_for(action) : tensor, other);
  }
}

// What the action receives is here, and is what was sent.
void StepExecutor::arrive(const Action& receive) {
  if (links_.ready(receive) && codes_ && training_) codes_->decode(receive, message(receive));
}

// `publishing`: those alone that publish, or that do not.
void StepExecutor::run_actions(std::size_t first, std::size_t end, std::optional<bool> publishing) {
  const std::vector<Action>& actions = setup_.step.actions;
  TimeAccount* const account = setup_.options.account;
  const Spending computing(account, TimeUse::compute);
  for (std::size_t i = first; i < end; ++i) {
    const Action& action = actions[i];
    if (publishing && (action.kind == ActionKind::publish) != *publishing) continue;
    if (watch_) watch_->comes_to(i);
    if (account) account->enter(use_of(action.kind));
    if (doing_) doing_->begin_action(static_cast<int>(i));
    if (stream_.runs_ahead()) stream_.begin_range(to_string(action).c_str());
    if (watch_ && !is_phase(action.kind)) watch_->runs(action);
    run(action);
    if (stream_.runs_ahead()) stream_.end_range();
    if (watch_ && stream_.runs_ahead() && watch_->holds_stream()) stream_.synchronize();
    if (watch_) watch_->is_done_with(action);
  }
}

void StepExecutor::run_part(StepPart part) {
  const std::size_t all = setup_.step.actions.size();
  switch (part) {
    case StepPart::gradients:
      return run_actions(0, norm_at_);
    case StepPart::updates:
      run_actions(norm_at_, norm_at_ + 1);
      wait_for_readers();
      settle();
      return run_actions(norm_at_ + 1, all, false);
    case StepPart::publishing:
      return run_actions(norm_at_ + 1, all, true);
  }
}

// No marks of time are captured: they are made between the halves, anew for each step.
void StepExecutor::capture_halves(std::int64_t batch_number) {
  TimeAccount* const account = setup_.options.account;
  const bool paused = !account || account->paused();
  if (!paused) account->pause(true);
  gradients_replay_ = stream_.capture([&] {
    begin(true, batch_number);
    run_actions(0, norm_at_);
  });
  if (gradients_replay_) updates_replay_ = stream_.capture([&] { run_actions(norm_at_, setup_.step.actions.size()); });
  if (!paused) account->pause(false);
}

void StepExecutor::wait_for_readers() {
  for (Event* const read : std::exchange(readers_, {})) stream_.wait(*read);
}

void StepExecutor::run_unflushed(std::int64_t batch_number) {
  const bool first = is_drained();
  const UnflushedStep& lists = *setup_.step.unflushed;
  window_->begin_step();
  begin(true, batch_number);
  if (first) state_.versions()->begin_window();
  wait_for_readers();
  first ? run_actions(0, lists.steady) : run_actions(lists.steady, lists.drain);
}

void StepExecutor::drain() {
  if (is_drained()) return;
  window_->begin_drain();
  run_actions(setup_.step.unflushed->drain, setup_.step.actions.size());
  links_.settle();
  window_->end();
}

// The first time action by action, as libraries and code are loaded then.
void StepExecutor::run_step(std::int64_t batch_number, StateHashes* hashes) {
  const bool first = steps_run_++ == 0;
  hashes_ = hashes;
  if (window_) return run_unflushed(batch_number);
  if (!watch_ && !gradients_replay_ && repeats_ && !first) capture_halves(batch_number);
  if (watch_ || !gradients_replay_) {
    begin(true, batch_number);
    run_actions(0, norm_at_ + 1);  // after the norm, whose messages are waited for
    wait_for_readers();
    if (hashes_) hashes_->before_updates();
    run_actions(norm_at_ + 1, setup_.step.actions.size());
    return synchronize_after(batch_number);
  }
  const Spending computing(setup_.options.account, TimeUse::compute);
  gradients_replay_->run();
  wait_for_readers();
  if (hashes_) hashes_->before_updates();
  const Spending updating(setup_.options.account, TimeUse::optimizer);
  updates_replay_->run();
  synchronize_after(batch_number);
}

void StepExecutor::synchronize_after(std::int64_t batch_number) {
  if (!state_.takes_local_steps() || !setup_.options.sync.agrees_after(batch_number + 1)) return;
  const Spending updating(setup_.options.account, TimeUse::optimizer);
  links_.settle();
  state_.synchronize();
}

void StepExecutor::settle() {
  links_.settle();
  for (int u = 0; u < setup_.model.units(); ++u) state_.weights().ready(u);
}

void StepExecutor::count_by(PhaseCounter* counter) {
  LOCKSTEP_CHECK(setup_.on_meta(), "phases on {} are run, not counted", name_of(stream_.device()));
  counter_ = counter;
}

}  // namespace lockstep
