#include "train/rank_state.h"

#include <algorithm>

#include "checkpoint/local_state.h"
#include "checkpoint/state_runs.h"
#include "parallel/block_coded_sum.h"
#include "parallel/pipeline_links.h"
#include "parallel/reduce_kind.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

// Where the embedding is here and its gradient has rows that nobody has: a tied head adds to all of them.
std::optional<EmbeddingRows::Options> embedding_rows(const RankSetup& setup) {
  const RankSetup::Options& o = setup.options;
  if (o.layout.embedding_gradient == EmbeddingGradient::dense || o.spec.tied || !setup.has(0) || o.how.lora ||
      o.layout.replicas() == 1)
    return std::nullopt;
  return EmbeddingRows::Options{
      .form = o.layout.embedding_gradient,
      .rows = o.layout.tensor_split(setup.rank()).part(o.spec.vocabulary),
      .width = o.spec.width,
      .most_tokens = o.B * o.T,
      .beside = o.layout.shards() > 1 && o.spec.positions == PositionKind::learned ? o.spec.max_positions : 0,
      .dtype = storage_types(o.precision).gradient};
}

Gradients::Options gradient_options(const RankSetup& setup, PartialGradients& partial) {
  const StepShape& shape = setup.step.shape;
  std::optional<TiedParameter> tie;
  if (const Model::Tie* t = setup.model.tie();
      t && shape.trains(t->owner_unit) && (shape.has(t->owner_unit) || shape.has(t->borrower_unit)))
    tie = {.owner_unit = t->owner_unit,
           .owner_parameter = t->owner_parameter,
           .borrower_unit = t->borrower_unit,
           .borrower_parameter = t->borrower_parameter,
           .owner = &setup.model.unit(t->owner_unit).layout(),
           .has_owner = shape.has(t->owner_unit),
           .has_borrower = shape.has(t->borrower_unit)};
  return {.layouts = setup.layouts(),
          .tie = tie,
          .actions = setup.step.unflushed ? setup.step.unflushed->reductions : setup.step.actions,
          .shape = shape,
          .dtype = storage_types(setup.options.precision).gradient,
          .overlap = setup.dp->overlaps(),
          .complete = [&partial](int unit, const Tensor& flat) { partial.sum(unit, flat); },
          .algorithm = algorithm_of(setup.options.layout.reduce),
          .compress = setup.options.sync.compress,
          .feedback = setup.options.sync.feedback,
          .rows = embedding_rows(setup),
          .root = setup.dp->root(),
          .offloaded = setup.options.how.memory.offload_gradients == Offload::none
                           ? std::vector<bool>{}
                           : setup.offloaded_units(setup.options.how.memory.offload_gradients),
          .offload = setup.offload,
          .offload_on_disk = setup.options.how.memory.offload_gradients == Offload::disk,
          .rooms = setup.rooms};
}

// By unit that is held here.
std::map<int, ZeroShard> make_shards(RankSetup& setup) {
  std::map<int, ZeroShard> shards;
  const std::vector<bool> state_goes = setup.offloaded_units(setup.options.how.memory.offload_optimizer);
  const std::vector<bool> weights_go = setup.units_with_weights_offloaded();
  for (int u = 0; u < setup.model.units(); ++u)
    if (setup.holds(u))
      shards.try_emplace(
          u, setup.model.unit(u).layout(),
          ZeroShard::Options{
              .types = storage_types(setup.options.precision),
              .optimizer = setup.options.optimizer,
              .updates = setup.has(u) && setup.dp->updates(),
              .shard = setup.groups.shard(),
              .whole_weights = !setup.step.shape.gathers && !setup.dp->serves(),
              .weights_in = setup.groups.sharded() || setup.groups.servers() ? &setup.sent_memory() : nullptr,
              .weights_offloaded_to = weights_go[static_cast<std::size_t>(u)] ? setup.offload : nullptr,
              .state_in = state_goes[static_cast<std::size_t>(u)] ? setup.offload : nullptr},
          setup.memory, setup.stream);
  return shards;
}

// The weights of each unit that is here; under ZeRO-3 they are set when they are gathered.
std::vector<UnitTensors> make_units(const RankSetup& setup, const std::map<int, ZeroShard>& shards) {
  const Model& model = setup.model;
  std::vector<UnitTensors> units(static_cast<std::size_t>(model.units()));
  for (int u = 0; u < model.units(); ++u) {
    if (!setup.has(u) || setup.dp->serves()) continue;
    const auto& parameters = model.unit(u).layout().parameters();
    units[u].weights.resize(parameters.size());
    for (int p = 0; p < static_cast<int>(parameters.size()) && !setup.step.shape.gathers; ++p)
      units[u].weights[p] = parameters[p].tied ? shards.at(model.tie()->owner_unit).weight(model.tie()->owner_parameter)
                                               : shards.at(u).weight(p);
  }
  return units;
}

std::unique_ptr<WeightVersions> make_versions(const RankSetup& setup, const std::map<int, ZeroShard>& shards,
                                              const std::vector<UnitTensors>& units) {
  if (!setup.step.unflushed) return nullptr;
  std::map<int, std::vector<ConstTensor>> whole;
  for (const auto& [u, shard] : shards) whole[u] = units[static_cast<std::size_t>(u)].weights;
  return std::make_unique<WeightVersions>(setup.step.unflushed->stage.stashes(), shards, whole, setup.memory,
                                          setup.stream);
}

}  // namespace

RankState::RankState(RankSetup& setup)
    : setup_(setup),
      partial_(setup.layouts(), setup.mesh.tensor(), algorithm_of(setup.options.layout.reduce)),
      gradients_(make_gradients(gradient_options(setup, partial_), setup.options.layout, setup.groups,
                                setup.sent_memory(), setup.stream)),
      shards_(make_shards(setup)),
      weights_(std::make_unique<ZeroWeights>(
          ZeroWeights::Options{.layouts = setup.layouts([&](int u) { return setup.holds(u); }),
                               .step = setup.step.actions,
                               .evaluation = setup.step.evaluation,
                               .shape = setup.step.shape,
                               .overlap = setup.dp->overlaps(),
                               .codes = setup.options.sync.compress_weights
                                            ? std::optional(block_form(setup.options.sync.compress_weights))
                                            : std::nullopt,
                               .root = setup.dp->root(),
                               .on_disk = setup.options.how.memory.offload_parameters == Offload::disk,
                               .rooms = setup.rooms,
                               .before_fetch =
                                   [this](int unit, Stream& fetching) {
                                     const auto pass = passes_.find(unit);
                                     if (pass != passes_.end()) staging_->wait_until_back(pass->second, fetching);
                                   }},
          shards_, setup.groups, setup.sent_memory(), setup.stream)),
      local_(setup.options.sync.takes_local_steps()
                 ? std::make_unique<LocalSteps>(setup.options.sync, shards_, setup.mesh.others(), setup.memory,
                                                setup.stream)
                 : nullptr),
      masks_(setup.options.sparsity ? std::make_unique<MaskSteps>(setup, shards_) : nullptr),
      units_(make_units(setup, shards_)),
      versions_(make_versions(setup, shards_, units_)),
      control_(setup.memory.allocate(kStepControls * 8, Tag::workspace)),
      loss_scale_{.exponent = setup.options.precision.loss_scale.first()} {
  offload();
  write_control();
}

// Passes are in the order of the norm, then in that in which the step updates units.
void RankState::offload() {
  const MemorySpec& memory = setup_.options.how.memory;
  const StorageTypes types = storage_types(setup_.options.precision);
  std::vector<Staging::Pass> passes;
  std::vector<HostUpdates::Pass> host_passes;
  for (const auto& [u, shard] : shards_) {
    if (!shard.updates() || !gradients_->is_offloaded(u)) continue;
    norm_passes_[u] = static_cast<int>(passes.size());
    passes.push_back({{gradients_->reduced(u), Staging::Access::read}});
  }
  for (const Action& action : setup_.step.actions) {
    if (action.kind != ActionKind::update) continue;
    const ZeroShard& shard = shards_.at(action.unit);
    Staging::Pass pass = shard.offloaded();
    if (norm_passes_.contains(action.unit)) pass.emplace_back(gradients_->reduced(action.unit), Staging::Access::read);
    if (pass.empty()) continue;
    passes_[action.unit] = static_cast<int>(passes.size());
    passes.push_back(std::move(pass));
    host_passes.push_back({.elements = shard.own_weight().elements(),
                           .gradient = types.gradient,
                           .weight = types.compute,
                           .weight_comes = !shard.master_is_offloaded()});
  }
  if (passes.empty()) return;
  const std::int64_t window = memory.offload_window << 20;
  if (memory.updates_on_host()) {
    host_updates_ = std::make_unique<HostUpdates>(
        HostUpdates::Options{.window_bytes = window, .threads = setup_.options.host_threads, .controls = kStepControls},
        std::move(host_passes), *setup_.offload, setup_.memory, setup_.stream);
    return;
  }
  staging_ = std::make_unique<Staging>(Staging::Options{.window_bytes = window,
                                                        .on_disk = memory.offloads_to() == Offload::disk,
                                                        .rooms = setup_.rooms,
                                                        .rounds_apart = !norm_passes_.empty()},
                                       std::move(passes), setup_.memory, setup_.stream);
  held_control_ = setup_.memory.allocate(kStepControls * 8, Tag::workspace);
}

// Tells the device how many updates there were, and the loss scale.
void RankState::write_control() {
  double host[kStepControls] = {};
  host[kStep] = static_cast<double>(updates_);
  host[kLossExponent] = loss_scale_.exponent;
  host[kScaledSteps] = static_cast<double>(loss_scale_.steps);
  upload(control(), host, setup_.stream);
}

void RankState::count_batch(std::span<const double> controls) {
  // Without a flush they are those of the step, also where some are still to come.
  if (setup_.step.unflushed)
    updates_ += setup_.step.unflushed->stage.updates_per_step();
  else if (controls[kFinite] != 0)
    ++updates_;
  ++batches_;
  loss_scale_ = {static_cast<int>(controls[kLossExponent]), static_cast<std::int64_t>(controls[kScaledSteps])};
}

void RankState::count_step(std::int64_t updates) {
  updates_ = updates;
  ++batches_;
}

void RankState::open_gradients(int unit, int micro) {
  units_[static_cast<std::size_t>(unit)].gradients = gradients_->open(unit, micro);
}

void RankState::use_current_weights() {
  if (!versions_) return;
  for (const auto& [u, shard] : shards_) units_[static_cast<std::size_t>(u)].weights = versions_->current(u);
}

void RankState::gather(int unit) {
  const auto [flat, frozen] = weights_->gather(unit);
  const UnitLayout& layout = setup_.model.unit(unit).layout();
  for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p) {
    const StoredParameter& stored = layout.parameters()[p];
    if (stored.tied) continue;
    const Tensor weight = (stored.frozen ? frozen : flat)
                              .slice(0, layout.offset(p), stored.elements())
                              .reshape(Shape(std::span(stored.shape)));
    if (setup_.has(unit)) units_[unit].weights[p] = weight;
    if (const Model::Tie* tie = setup_.model.tie();
        tie && unit == tie->owner_unit && p == tie->owner_parameter && setup_.has(tie->borrower_unit))
      units_[tie->borrower_unit].weights[tie->borrower_parameter] = weight;
  }
}

void RankState::hold_control() {
  if (host_updates_) host_updates_->hold(control());
  if (!staging_ || setup_.on_meta()) return;
  copy_later(held_control_.data(), control_.data(), kStepControls * 8, setup_.stream);
}

void RankState::update(int unit) {
  ZeroShard& shard = shards_.at(unit);
  const ConstTensor gradient = gradients_->reduced(unit);
  if (masks_) return shard.update(gradient, control(), masks_->room(), setup_.stream);
  const auto pass = passes_.find(unit);
  if (pass == passes_.end()) return shard.update(gradient, control(), setup_.stream);
  if (host_updates_)
    return host_updates_->run(pass->second, gradient, shard.own_weight(), [&shard](const HostUpdates::Window& window) {
      shard.update_on_host(window.begin, window.weight, window.gradient, window.control, window.stream);
    });
  const Tensor held = view(held_control_, DType::f64, {kStepControls});
  const bool brings_gradient = gradients_->is_offloaded(unit);
  staging_->run(pass->second, [&](const Staging::Window& window) {
    const std::size_t others = window.parts.size() - (brings_gradient ? 1 : 0);
    shard.update(window.begin, window.parts.first(others),
                 brings_gradient ? window.parts.back() : gradient.slice(0, window.begin, window.count), held,
                 window.stream);
  });
}

void RankState::each_gradient_window(int unit, const GlobalNorm::Window& window) {
  const int pass = norm_passes_.at(unit);
  if (pass == 0) gradients_->wait_until_back(staging_->up());
  staging_->run(pass, [&](const Staging::Window& w) { window(w.begin, w.parts[0], w.stream); });
  staging_->wait_for(pass);
}

void RankState::updated(int unit) {
  const auto pass = passes_.find(unit);
  if (pass == passes_.end()) return;
  host_updates_ ? host_updates_->wait_for(pass->second) : staging_->wait_for(pass->second);
}

void RankState::visit_masters(const ZeroShard& shard, Staging::Access access, const Staging::Work& work) {
  host_updates_ ? host_updates_->visit(shard.own_master(), access, work)
                : staging_->visit({{shard.own_master(), access}}, work);
}

Staging::Traffic RankState::traffic() const {
  Staging::Traffic all = host_updates_ ? host_updates_->traffic() : staging_ ? staging_->traffic() : Staging::Traffic{};
  all.to_device += weights_->fetched() + gradients_->traffic().to_device;
  all.from_device += gradients_->traffic().from_device;
  return all;
}

void RankState::settle() const {
  gradients_->settle();
  if (host_updates_) host_updates_->settle();
  if (!staging_) return;
  staging_->settle();
  staging_->forget();
}

Tensor RankState::tied_weight() const { return shards_.at(setup_.step.shape.tie_owner).own_weight(); }

Relayout RankState::grow_mask(std::int64_t steps) {
  settle();
  for (const auto& [u, shard] : shards_) weights_->ready(u);  // what the step before has published of it
  const Relayout done = masks_->grow(steps);
  send_weights();
  return done;
}

void RankState::mask_gradients() {
  if (masks_) masks_->mask(*gradients_);
}

// Weights everywhere become what the masters say.
void RankState::publish() {
  settle();
  for (auto& [u, shard] : shards_) {
    if (const Staging::Pass pass = shard.offloaded_to_publish(); !pass.empty()) {
      const auto publish = [&, &shard = shard](const Staging::Window& w) {
        shard.publish(w.begin, w.count, w.parts, w.stream);
      };
      host_updates_ ? visit_masters(shard, Staging::Access::read, publish) : staging_->visit(pass, publish);
    } else {
      shard.publish(setup_.stream);
    }
  }
  exchange_tied_weight();
  if (local_) local_->set_anchor();
  send_weights();
}

void RankState::send_weights() {
  if (!setup_.step.shape.publishes || setup_.options.workers_may_die) return;  // with its first ticket
  for (const auto& [u, shard] : shards_) {
    weights_->publish(u);
    weights_->ready(u);
  }
}

void RankState::synchronize() {
  for (const auto& [u, shard] : shards_) weights_->ready(u);  // what the step has published of it
  local_->synchronize();
  exchange_tied_weight();
  send_weights();
}

// A copy of a tied weight becomes what its owner says. Of ranks that update nothing, it becomes that when it is
// published.
void RankState::exchange_tied_weight() {
  const StepShape& shape = setup_.step.shape;
  if (!shape.tie_is_sent() || !setup_.dp->updates()) return;
  PipelineLinks links(setup_.mesh.pipeline());
  const Action send{ActionKind::send_tied_weight, shape.tie_owner};
  const Action receive{ActionKind::receive_tied_weight, shape.tie_borrower};
  if (setup_.has(shape.tie_owner)) links.send(tied_weight(), other_end(send, shape));
  if (setup_.has(shape.tie_borrower)) links.receive(receive, tied_weight(), other_end(receive, shape));
  links.settle();
}

}  // namespace lockstep
