// One rank's part in training a model: its state, the executor of its steps, and the steps in flight, behind one set of
// calls.
//
// Runs on any device; on meta it allocates and computes nothing, and its memory's ledger and its stream's counts are
// what a real one would have. Memory, stream and ranks outlive it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/async_steps.h"
#include "train/rank_setup.h"
#include "train/rank_state.h"
#include "train/state_hashes.h"
#include "train/step_executor.h"
#include "train/steps_in_flight.h"

namespace lockstep {

class Replica {
 public:
  using Ranks = RankSetup::Ranks;
  using Options = RankSetup::Options;
  using Named = RankState::Named;
  using Result = StepResult;

  Replica(const Options& options, Memory& memory, Stream& stream, Memory* offload = nullptr,
          Memory* rooms = nullptr);  // alone
  // `offload`: for what the options move off the device; `rooms`: on the host, for what is on its way between a disk
  // and a GPU.
  Replica(const Options& options, const Ranks& ranks, Memory& memory, Stream& stream, Memory* offload = nullptr,
          Memory* rooms = nullptr);

  // The state (rank_state.h).
  std::vector<Named> tensors() const { return state_.tensors(); }
  std::vector<StateTensor> state(bool counted_alone = false) const { return state_.state(counted_alone); }
  std::vector<StateTensor> owed(bool counted_alone = false) const { return state_.owed(counted_alone); }
  void sum_owed() { state_.sum_owed(); }
  void deal_owed() { state_.deal_owed(); }
  void init_weights(bool frozen_too = true);
  void load(std::span<const ConstTensor> values);
  std::vector<StateTensor> frozen() const { return state_.frozen(); }
  void load_frozen(std::span<const ConstTensor> values) { state_.load_frozen(values); }
  void resume(std::int64_t batches, std::int64_t updates, const std::optional<LossScaleState>& scale = {});
  std::int64_t steps_done() const { return state_.updates(); }
  std::int64_t batches() const { return state_.batches(); }
  const LossScaleState& loss_scale() const { return state_.loss_scale(); }  // of the next step

  // The samples of the global batch that the caller gives this rank: its own; under central data parallel, all of them
  // on rank 0 and none elsewhere; of a parameter server, none.
  Share given() const { return setup_.dp->given(); }
  // One training step on (given().count, T) tokens and their targets (kIgnoredTarget = no loss there).
  Result step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  // The same in two calls: begin gives all its work to the stream; finish waits for the oldest step begun. Up to
  // kStepsInFlight may be begun and not finished.
  static constexpr int kStepsInFlight = StepsInFlight::kMost;
  void begin_step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    grow_mask_if_due();
    in_flight_.begin(tokens, targets, learning_rate_);
  }
  Result finish_step() { return async_ ? async_->finish() : in_flight_.finish(); }
  int steps_in_flight() const { return in_flight_.count(); }
  // Waits for what the last step has left under way: weights that are being published, which the next would wait for.
  // All ranks call it before they part.
  void settle() { executor_.settle(); }
  // Where steps overlap: the last backwards of the steps so far, which the next would run beside. Then the state is
  // whole, and may be saved and evaluated; false: a stage has found a value that is not finite, and it is not. All
  // ranks call it, no step being in flight. Elsewhere there is nothing to do.
  bool drain();
  void set_learning_rate(double rate) { learning_rate_ = rate; }  // of the steps that follow

  // Under a mask ([sparsity]) a step first makes the mask step that is due, and then none may be in flight. What it has
  // done, once.
  std::optional<Relayout> take_relayout() { return std::exchange(relayout_, std::nullopt); }
  // Asynchronous steps (async_steps.h), where [sync] has them: the batch of a step begins with sample `first`, and the
  // ranks read theirs themselves, when they get a ticket.
  bool is_asynchronous() const { return async_ != nullptr; }
  AsyncSteps& async() { return *async_; }
  void begin_step(std::int64_t first) { async_->begin(first, learning_rate_); }

  // These need all steps to be finished.
  // The mask step that comes after so many training steps.
  Relayout grow_mask(std::int64_t steps);
  // Packed state and masks, made whole for state() (rank_state.h).
  void open_state(bool in_turns = false) { state_.open_state(in_turns); }
  void turn_state_to(const std::string& tensor) { state_.turn_state_to(tensor); }
  void close_state() { state_.close_state(); }
  // A step in two halves: forward and backward; then norm, clipping and update.
  double compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  Result apply_gradients();
  // Forward alone: the loss, and the logits of this rank's samples (its share's count · T, V) when a host buffer for
  // them is given, of zeros, in the accumulator type's values.
  double evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                  std::span<double> logits = {});
  // Where replicas take local steps: they agree on the weights now, whatever step it is. All ranks call it.
  void synchronize();
  // What the last evaluation found, of the global batch: the loss, and how many targets were the likeliest token.
  const BatchBuffers::Evaluated& evaluated() const { return evaluated_; }
  // After a step that did not update: which tensor was the first to hold a value that is not finite (bad_values.h).
  // `later`: steps finished since, none of which updated. All ranks call it and are told the same.
  std::optional<std::string> find_bad_value(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                                            std::int64_t later = 0);
  // With Options::check_state: hashes all of this rank's state, and throws EnvironmentError, naming this rank, where
  // what is guarded has changed since the last update (state_hashes.h). The hashes are of state_hashes()->entries().
  std::vector<StateHash> hash_state();
  const StateHashes* state_hashes() const { return hashes_ ? &*hashes_ : nullptr; }
  // Shows the steps that follow, until told otherwise (null).
  void show(StepWatch* watch);
  // Notes what the steps that follow are doing, as long as it lives.
  void note_in(Doing* doing) {
    executor_.note_in(doing);
    if (async_) async_->note_in(doing);
  }
  // The next step's updates wait for who reads the state beside it.
  void update_after(Event& read) { executor_.update_after(read); }

  // On meta: phases that the counter has counted do not run, until told otherwise (null). It outlives the steps.
  void count_by(PhaseCounter* counter) { executor_.count_by(counter); }

  // What has been moved to the device and back so far.
  Staging::Traffic traffic() const { return state_.traffic(); }

  ActivationOffload::Traffic moved_activations() const { return executor_.moved_activations(); }

  const Model& model() const { return setup_.model; }
  std::shared_ptr<const Model> shared_model() const { return setup_.shared_model; }
  const RankStep& rank_step() const { return setup_.step; }
  const std::vector<Action>& actions() const { return setup_.step.actions; }

 private:
  void remember_state();
  void grow_mask_if_due();

  RankSetup setup_;
  RankState state_;
  StepExecutor executor_;
  std::optional<StateHashes> hashes_;  // none: state is not checked
  StepsInFlight in_flight_;
  std::unique_ptr<AsyncSteps> async_;  // none: steps are synchronous
  double learning_rate_;
  double last_loss_ = 0;  // of compute_gradients
  std::optional<Relayout> relayout_;
  BatchBuffers::Evaluated evaluated_;
};

}  // namespace lockstep
