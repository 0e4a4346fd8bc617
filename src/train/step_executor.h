// The executor of a rank's step: runs a list of actions over the rank's state (rank_state.h).
//
// One action is one line of run(). Which actions there are and in which order, the lists say (rank_step.h); what a rank
// holds and what it sends is decided in parallel/. The executor owns what an action needs beside the state: the batch,
// activations, messages between stages, and the groups of tensor and context parallel.
//
// The same on every device; on meta it computes nothing, and the ledger and the stream's counts are those of a real
// step. An action never makes the device wait for the host. Everything is allocated by the constructor. One thread uses
// it; setup and state outlive it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/single_rank.h"
#include "offload/activation_offload.h"
#include "parallel/activation_codes.h"
#include "parallel/context_parallel.h"
#include "parallel/global_norm.h"
#include "parallel/pipeline_links.h"
#include "parallel/tensor_parallel.h"
#include "telemetry/doing.h"
#include "train/batch_buffers.h"
#include "train/phase_counter.h"
#include "train/pipedream_window.h"
#include "train/rank_state.h"
#include "train/state_hashes.h"
#include "train/step_watch.h"

namespace lockstep {

// A step's list in three: what makes the gradients; norm and updates; weights on their way to those that compute.
enum class StepPart { gradients, updates, publishing };

class StepExecutor {
 public:
  StepExecutor(RankSetup& setup, RankState& state);

  // Puts the batch of the lists that run next onto the device: tokens and targets of the samples that dp->given() names
  // (parallel/data_parallel.h), in one of the places of batch_buffers.h.
  void set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place);
  BatchBuffers& batch() { return batch_; }

  // A list of actions is begun, then run from its first action on. `batch_number` keys dropout's masks.
  void begin(bool training, std::int64_t batch_number);
  void run(const Action& action);
  // The two halves of the step's list: what makes the gradients; norm, updates and publishing.
  std::span<const Action> gradient_actions() const { return std::span(setup_.step.actions).first(norm_at_); }
  std::span<const Action> update_actions() const { return std::span(setup_.step.actions).subspan(norm_at_); }
  // The whole list of the step, with the watch's notes. Where the stream runs ahead and steps repeat, their two halves
  // are captured the second time and given to the device as wholes from then on, unless somebody watches.
  // `hashes` are made around its updates; whether there are any is the same in all steps.
  void run_step(std::int64_t batch_number, StateHashes* hashes = nullptr);
  // One of the three alone, after begin() (async_steps.h). Updates wait for weights that are being published.
  void run_part(StepPart part);
  // Where steps overlap (spec/pipeline/pipedream.h), a step ends with its last forward: its last backwards run beside
  // the next step's forwards, or in drain(), after which the state is whole. Elsewhere nothing is ever left.
  void drain();
  bool is_drained() const { return !window_ || window_->is_empty(); }
  // Where the learning rate of the batch in this place goes, before the batch's step.
  Tensor learning_rate(int place) const;

  // Somebody reads the state beside the step that comes next: its updates wait for that. The event outlives the step's
  // run_step().
  void update_after(Event& read) { readers_.push_back(&read); }

  // After a step's updates, where replicas take local steps: they agree, if this batch was the last before they do.
  void synchronize_after(std::int64_t batch_number);

  // Waits for the messages between stages.
  void settle_links() { links_.settle(); }
  // And for weights that are being published, which the next step would wait for.
  void settle();

  // After the forward of the last unit: the logits of a micro-batch's tokens (rows, columns of head().vocabulary()).
  void logits(const Tensor& out, const Action& forward);
  // In the places of the step's list.
  PhaseActivations activations(int micro) const { return {activations_.of(micro), extent_of(micro)}; }

  // Shows the steps that follow, until told otherwise (null). Where the stream runs ahead they wait for it after every
  // action, unless the watch does without (step_watch.h).
  void show(StepWatch* watch) { watch_ = watch; }
  // Notes every action of the steps that follow as it begins. It outlives the steps.
  void note_in(Doing* doing) { doing_ = doing; }
  // What has been moved of activations that are offloaded, so far.
  ActivationOffload::Traffic moved_activations() const {
    return offload_ ? offload_->traffic() : ActivationOffload::Traffic{};
  }
  // On meta: phases that the counter has counted do not run, until told otherwise (null). It outlives the steps.
  void count_by(PhaseCounter* counter);

 private:
  void come_to(const Action& action);
  void run_phase_of(const Action& action);
  void run_norm();
  void run_own_norm(const Action& action);
  void run_unflushed(std::int64_t batch_number);
  void free_places(const Action& phase);
  void update(int unit);
  void exchange(const Action& action);
  void arrive(const Action& receive);
  Tensor message(const Action& action) const;
  void run_actions(std::size_t first, std::size_t end, std::optional<bool> publishing = {});
  void wait_for_readers();
  void capture_halves(std::int64_t batch_number);
  Call call(const Action& action, const Batch& batch) const;
  PhaseActivations activations_at(int micro) const {
    const RowExtent extent = extent_of(micro);
    if (!training_) return {activations_.of_forwards(micro), extent};
    return {activations_.of(window_ ? window_->place(micro) : micro), extent};
  }
  // How many tokens the micro-batch has.
  RowExtent extent_of(int micro) const {
    const TensorSplit& split = tensor_.split();
    if (!window_ || !training_) return batch_.extent(micro, split);
    return batch_.extent(window_->of_step(micro), split, window_->steps_before(micro));
  }
  int micro_of_gradient(int micro) const { return window_ ? window_->of_gradient(micro) : micro; }

  RankSetup& setup_;
  RankState& state_;
  Stream& stream_;
  TensorParallel tensor_;
  std::optional<ContextParallel> context_;  // where samples are split
  PipelineLinks links_;
  std::optional<ActivationCodes> codes_;  // none: activations are sent as they are
  BatchBuffers batch_;
  int place_ = 0;  // of the batch that was set last
  StepActivations activations_;
  std::optional<ActivationOffload> offload_;  // none: they stay
  std::size_t at_ = 0;                        // the action of the step's list that comes next
  std::unique_ptr<RemoteLoss> remote_loss_;   // where another rank computes the losses
  GlobalNorm norm_;
  std::size_t norm_at_ = 0;  // index of the norm in the step's list
  bool training_ = true;     // of the list that was begun
  std::int64_t batch_number_ = 0;
  std::optional<PipeDreamWindow> window_;  // where steps overlap
  Buffer rates_;                           // and learning rates, by place of a batch
  SingleRank alone_;                       // and who finds a stage's norm
  bool repeats_;                           // steps are the same work each time
  std::int64_t steps_run_ = 0;
  std::unique_ptr<Replay> gradients_replay_, updates_replay_;  // both or none
  std::vector<Event*> readers_;                                // of the state, that the next updates wait for
  StateHashes* hashes_ = nullptr;                              // of the step that runs
  StepWatch* watch_ = nullptr;
  Doing* doing_ = nullptr;
  PhaseCounter* counter_ = nullptr;
};

}  // namespace lockstep
