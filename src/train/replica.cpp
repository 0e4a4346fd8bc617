#include "train/replica.h"

#include <algorithm>

#include "tensor/transfer.h"
#include "train/bad_values.h"
#include "train/host_values.h"

namespace lockstep {

namespace {
std::optional<StateHashes> make_hashes(RankSetup& setup, const RankState& state) {
  if (!setup.options.check_state) return std::nullopt;
  return std::optional<StateHashes>(std::in_place, setup, state);
}

std::unique_ptr<AsyncSteps> make_async(RankSetup& setup, RankState& state, StepExecutor& executor) {
  return setup.options.sync.is_asynchronous() ? std::make_unique<AsyncSteps>(setup, state, executor) : nullptr;
}
}  // namespace

Replica::Replica(const Options& options, Memory& memory, Stream& stream, Memory* offload, Memory* rooms)
    : setup_(options, nullptr, memory, stream, offload, rooms),
      state_(setup_),
      executor_(setup_, state_),
      hashes_(make_hashes(setup_, state_)),
      in_flight_(setup_, state_, executor_, hashes_ ? &*hashes_ : nullptr),
      async_(make_async(setup_, state_, executor_)),
      learning_rate_(options.optimizer.learning_rate) {}

Replica::Replica(const Options& options, const Ranks& ranks, Memory& memory, Stream& stream, Memory* offload,
                 Memory* rooms)
    : setup_(options, &ranks, memory, stream, offload, rooms),
      state_(setup_),
      executor_(setup_, state_),
      hashes_(make_hashes(setup_, state_)),
      in_flight_(setup_, state_, executor_, hashes_ ? &*hashes_ : nullptr),
      async_(make_async(setup_, state_, executor_)),
      learning_rate_(options.optimizer.learning_rate) {}

void Replica::init_weights(bool frozen_too) {
  state_.init_weights(frozen_too);
  remember_state();
}

void Replica::load(std::span<const ConstTensor> values) {
  state_.load(values);
  remember_state();
}

void Replica::resume(std::int64_t batches, std::int64_t updates, const std::optional<LossScaleState>& scale) {
  state_.resume(batches, updates, scale);
  remember_state();
}

Relayout Replica::grow_mask(std::int64_t steps) {
  in_flight_.require_none();
  settle();
  return state_.grow_mask(steps);
}

void Replica::grow_mask_if_due() {
  const std::int64_t steps = state_.batches() + in_flight_.count();
  if (setup_.options.sparsity.masks_after(steps)) relayout_ = grow_mask(steps);
}

void Replica::remember_state() {
  if (!hashes_ || setup_.on_meta()) return;
  settle();
  const std::vector<StateHash> all = hashes_->hash_all();
  hashes_->remember(std::span(all).first(static_cast<std::size_t>(hashes_->guarded())));
}

std::vector<StateHash> Replica::hash_state() {
  LOCKSTEP_CHECK(hashes_, "state is not hashed");
  in_flight_.require_none();
  settle();
  std::vector<StateHash> all = hashes_->hash_all();
  hashes_->require_unchanged(std::span(all).first(static_cast<std::size_t>(hashes_->guarded())));
  return all;
}

Replica::Result Replica::step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  begin_step(tokens, targets);
  return finish_step();
}

bool Replica::drain() {
  if (executor_.is_drained()) return true;
  in_flight_.require_none();
  executor_.drain();
  double host[kStepControls] = {};
  download(host, state_.control(), setup_.stream);
  setup_.mesh.check();
  sum_over(setup_.mesh_hosts.pipeline(), host[kHalted]);
  return host[kHalted] == 0;
}

double Replica::compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  in_flight_.require_none();
  LOCKSTEP_CHECK(!setup_.step.unflushed, "steps that overlap have no halves");
  grow_mask_if_due();
  executor_.set_batch(tokens, targets, 0);
  executor_.begin(true, state_.batches());
  for (const Action& action : executor_.gradient_actions()) executor_.run(action);
  executor_.settle_links();
  state_.gradients().wait();
  executor_.batch().fetch_losses(0, setup_.stream);
  setup_.stream.synchronize();
  setup_.mesh.check();
  last_loss_ = executor_.batch().mean_loss(0);
  return last_loss_;
}

Replica::Result Replica::apply_gradients() {
  upload(state_.control().slice(0, kLearningRate, 1), &learning_rate_, setup_.stream);
  for (const Action& action : executor_.update_actions()) executor_.run(action);
  executor_.synchronize_after(state_.batches());
  double host[kStepControls] = {};
  download(host, state_.control(), setup_.stream);
  setup_.mesh.check();
  if (hashes_) hashes_->forget();
  return counted_step(state_, last_loss_, host);
}

double Replica::evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                         std::span<double> logits) {
  in_flight_.require_none();
  executor_.set_batch(tokens, targets, 0);
  BatchBuffers& batch = executor_.batch();
  const Model& model = setup_.model;
  const std::int64_t V = model.spec().vocabulary, room = model.B() * model.T();
  const std::int64_t wanted = setup_.dp->own().count * setup_.options.T * V;
  LOCKSTEP_CHECK(logits.empty() || std::ssize(logits) == wanted, "room for {} logits of {}", logits.size(), wanted);
  Buffer whole;
  const Part columns = model.head().vocabulary();
  if (!logits.empty()) whole = setup_.memory.allocate(room * columns.each * size_of(setup_.sums()), Tag::workspace);
  executor_.begin(false, state_.batches());
  for (const Action& action : setup_.step.evaluation) {
    executor_.run(action);
    if (logits.empty() || action.kind != ActionKind::forward || action.unit != model.units() - 1) continue;
    const std::int64_t rows = batch.rows().count(action.micro);
    const Tensor out = view(whole, setup_.sums(), {rows, columns.each});
    executor_.logits(out, action);
    const std::vector<double> values = to_doubles(out, setup_.stream);
    for (std::int64_t row = 0; row < rows; ++row)
      if (const std::int64_t place = batch.rows().place(action.micro, row); place >= 0)
        std::copy_n(values.begin() + row * columns.each, columns.count, logits.begin() + place * V + columns.first);
  }
  executor_.settle_links();
  // Every rank of a layer has some columns, every rank of a sample some rows, and the last stage has them all.
  MeshGroups& hosts = setup_.mesh_hosts;
  for (Communicator* others : {&hosts.tensor(), &hosts.context(), &hosts.pipeline()})
    if (!logits.empty() && others->size() > 1) sum_over(*others, logits);
  batch.fetch_losses(0, setup_.stream);
  batch.fetch_likeliest(0, setup_.stream);
  setup_.stream.synchronize();
  setup_.mesh.check();
  evaluated_ = batch.evaluated(0);
  return evaluated_.loss;
}

std::optional<std::string> Replica::find_bad_value(std::span<const std::int32_t> tokens,
                                                   std::span<const std::int32_t> targets, std::int64_t later) {
  executor_.set_batch(tokens, targets, 0);
  return BadValueSearch(setup_, state_, executor_).find(std::max<std::int64_t>(0, state_.batches() - 1 - later));
}

void Replica::synchronize() {
  in_flight_.require_none();
  LOCKSTEP_CHECK(state_.takes_local_steps(), "all replicas agree in every step");
  state_.synchronize();
}

void Replica::show(StepWatch* watch) {
  in_flight_.require_none();
  executor_.show(watch);
}

}  // namespace lockstep
