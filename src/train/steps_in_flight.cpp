#include "train/steps_in_flight.h"

#include <cmath>

#include "kernels/host_store.h"
#include "train/host_values.h"

namespace lockstep {

StepResult counted_step(RankState& state, double loss, std::span<const double> controls) {
  const int exponent = state.loss_scale().exponent;
  state.count_batch(controls);
  return {.loss = loss,
          .norm = controls[kNorm],
          .updated = controls[kFinite] != 0,
          .loss_scale = std::ldexp(1.0, exponent),
          .overflowed = controls[kLossExponent] < exponent};
}

StepsInFlight::StepsInFlight(RankSetup& setup, RankState& state, StepExecutor& executor, StateHashes* hashes)
    : setup_(setup), state_(state), executor_(executor), hashes_(hashes && hashes->guarded() > 0 ? hashes : nullptr) {
  for (Place& place : places_) {
    place.rate = HostBuffer(8, setup.stream);
    place.controls = HostBuffer(kStepControls * 8, setup.stream);
    if (const Tensor squares = state.gradients().compression_squares())
      place.left_out = HostBuffer(squares.bytes(), setup.stream);
    if (state.takes_local_steps()) place.drifted = HostBuffer(state.local_squares().bytes(), setup.stream);
    place.done = setup.stream.make_event();
    if (!hashes_) continue;
    const auto bytes = static_cast<std::int64_t>(sizeof(StateHash)) * hashes_->guarded();
    place.hashes_before = HostBuffer(bytes, setup.stream);
    place.hashes_after = HostBuffer(bytes, setup.stream);
  }
}

void StepsInFlight::require_none() const { LOCKSTEP_CHECK(count() == 0, "{} steps are in flight", count()); }

void StepsInFlight::begin(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                          double learning_rate) {
  LOCKSTEP_CHECK(count() < kMost, "{} steps are in flight", count());
  const int index = static_cast<int>(begun_ % kMost);
  Place& place = places_[index];
  StreamTimes* const times = setup_.options.times;
  place.timed = times && !setup_.options.account->paused();
  if (place.timed) times->begin_step();
  executor_.set_batch(tokens, targets, index);
  place.rate.as<double>()[0] = learning_rate;
  upload_later(executor_.learning_rate(index), place.rate.as<char>().data(), setup_.stream);
  if (!hashes_) {
    executor_.run_step(state_.batches() + count());
  } else {
    const Spending updating(setup_.options.account, TimeUse::optimizer);
    executor_.run_step(state_.batches() + count(), hashes_);
    executor_.settle();  // weights that are being published
    hashes_->fetch(place.hashes_before.as<std::byte>(), place.hashes_after.as<std::byte>());
  }
  executor_.batch().fetch_losses(index, setup_.stream);
  if (const Tensor squares = state_.gradients().compression_squares())
    download_later(place.left_out.as<char>().data(), squares, setup_.stream);
  place.agrees = state_.takes_local_steps() && setup_.options.sync.agrees_after(state_.batches() + count() + 1);
  if (place.agrees) download_later(place.drifted.as<char>().data(), state_.local_squares(), setup_.stream);
  host_store({.to = place.controls.as<char>().data(), .from = state_.control()}, setup_.stream);
  if (place.timed) times->end_step();
  setup_.stream.record(*place.done);
  if (setup_.step.unflushed) tell_stages(index);
  ++begun_;
}

// Each stage has a norm of its own and has halted by itself: what is told is of all of them, as far as they have come.
// Nobody waits for it before the next step was begun, since the stages come to it one after the other.
void StepsInFlight::tell_stages(int index) {
  Place& place = places_[index];
  place.done->wait();
  const auto controls = place.controls.as<double>();
  if (setup_.on_meta()) std::ranges::fill(controls, 0);
  place.told = {executor_.batch().loss_of_stage(index), controls[kNorm] * controls[kNorm], controls[kHalted]};
  Communicator& stages = setup_.mesh_hosts.pipeline();
  place.telling = stages.all_reduce(Tensor(place.told.data(), DType::f64, stages.device(), {std::ssize(place.told)}));
}

// Every rank has its part of every replica's weights, as often as ranks of a replica hold the same.
double StepsInFlight::divergence_of(std::span<std::int64_t> squares) {
  const LayoutSpec& layout = setup_.options.layout;
  const std::int64_t holders = layout.dp * layout.cp / layout.shards();
  std::array<double, 2> sums{Squares::value(squares, LocalSteps::kOfWeights),
                             Squares::value(squares, LocalSteps::kOfMean)};
  if (Communicator& world = setup_.mesh_hosts.world(); world.size() > 1) sum_over(world, sums);
  return std::sqrt(std::max(0.0, sums[0] - sums[1]) / static_cast<double>(holders));
}

StepResult StepsInFlight::finish() {
  LOCKSTEP_CHECK(count() > 0, "no step is in flight");
  const int index = static_cast<int>(finished_ % kMost);
  Place& place = places_[index];
  place.done->wait();
  setup_.mesh.check();  // else what has come may be of ranks that never summed
  ++finished_;
  if (hashes_) {
    hashes_->require_unchanged(place.hashes_before.as<StateHash>());
    hashes_->remember(place.hashes_after.as<StateHash>());
  }
  double loss = 0;
  if (setup_.step.unflushed) {
    place.telling->wait();
    loss = executor_.batch().mean(index, place.told[0]);
  } else {
    loss = executor_.batch().mean_loss(index);
  }
  StepResult result = counted_step(state_, loss, place.controls.as<double>());
  if (setup_.step.unflushed) {
    result.norm = std::sqrt(place.told[1]);
    result.updated = place.told[2] == 0;
  }
  // Replicas that take local steps decide for themselves; a run that is to stop hears of any of them.
  if (Communicator& others = setup_.mesh_hosts.others(); others.size() > 1) {
    std::int64_t bad = result.updated ? 0 : 1;
    sum_over(others, bad);
    result.updated = bad == 0;
  }
  if (const auto squares = place.left_out.as<std::int64_t>(); !squares.empty()) {
    const double gradients = Squares::value(squares, CompressedSums::kOfGradients);
    const double left = Squares::value(squares, CompressedSums::kOfResiduals);
    if (gradients > 0) result.compression_error = std::sqrt(left / gradients);
  }
  if (place.agrees) result.divergence = divergence_of(place.drifted.as<std::int64_t>());
  if (place.timed) result.times = setup_.options.times->read();
  return result;
}

}  // namespace lockstep
