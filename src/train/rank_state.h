// What one rank holds of a model in training: weights, gradients and optimizer state, all of them or its shards, and
// how many batches and updates it has behind it. A checkpoint is made of it.
//
// Every buffer is allocated by the constructor. Nothing here runs a step: the executor (step_executor.h) does, over
// these tensors. One thread uses it; the setup outlives it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/state.h"
#include "kernels/step_control.h"
#include "offload/host_updates.h"
#include "offload/staging.h"
#include "parallel/global_norm.h"
#include "parallel/gradients.h"
#include "parallel/local_steps.h"
#include "parallel/partial_gradients.h"
#include "parallel/weight_versions.h"
#include "parallel/zero_shards.h"
#include "parallel/zero_weights.h"
#include "train/mask_steps.h"
#include "train/rank_setup.h"

namespace lockstep {

class RankState {
 public:
  explicit RankState(RankSetup& setup);

  // A logical tensor and what of it is stored here, of the master weights and of the gradients: runs of its elements
  // within two flat tensors. Where it is sharded that may be a part of it, or nothing; tensors of layers that are
  // another stage's are not there at all.
  struct Named {
    LogicalTensor tensor;
    std::vector<Run> runs;
    bool counted;  // false: another rank of its layer has the same and answers for it
    Tensor master;
    Tensor gradient;
    // Copies between the values of one of the two tensors (`here`) and those of the whole logical tensor (`there`).
    void put(std::span<const double> here, std::span<double> there) const;
    void take(std::span<double> here, std::span<const double> there) const;
  };
  std::vector<Named> tensors() const;
  // Under a mask ([sparsity]): grows it as after so many steps. No step is in flight; all ranks call it.
  Relayout grow_mask(std::int64_t steps);
  // Makes packed state and its mask whole, in copies, for whoever reads or fills state(), and takes the copies away.
  // In turns: turn_state_to() is called before a tensor's pieces are read, unit after unit.
  void open_state(bool in_turns = false);
  void turn_state_to(const std::string& tensor);
  void close_state();
  // After the gradients were summed and before their norm.
  void mask_gradients();
  // Everything a checkpoint keeps of the tensors: master weights and the optimizer's state, piece by piece; all that is
  // here, or without what another rank of the same layer answers for. Where groups of replicas take local steps, the
  // moments' parts have the group's number (local_part()).
  std::vector<StateTensor> state(bool counted_alone = false) const;
  // What compression has left out of all ranks' gradients and owes the sums to come, the pieces of it that are here: of
  // a checkpoint too, where [sync] has feedback. sum_owed() before it is read, deal_owed() after it was set; all ranks
  // call them, while no step is under way. Without what another rank of the same layer answers for, if asked.
  std::vector<StateTensor> owed(bool counted_alone = false) const;
  void sum_owed() { gradients_->sum_owed(); }
  void deal_owed() { gradients_->deal_owed(); }

  // All ranks call these three, while no step is under way.
  void init_weights(bool frozen_too = true);  // from the seed and the tensors' names
  // In the order of logical_tensors() of the model, whole host tensors of any float type; what is another stage's is
  // passed over.
  void load(std::span<const ConstTensor> values);
  // Frozen weights that are here, in the type that computes: pieces of logical tensors, part "weight". And the same
  // from whole host tensors in the order of frozen_tensors().
  std::vector<StateTensor> frozen() const;
  void load_frozen(std::span<const ConstTensor> values);
  // After the tensors of state() were filled from a checkpoint: continues as the run that was saved, also with its loss
  // scale, if it is given and this run's is dynamic, and with its mask, where the state is open.
  void resume(std::int64_t batches, std::int64_t updates, const std::optional<LossScaleState>& scale = {});

  std::int64_t updates() const { return updates_; }  // what the optimizer's bias correction counts
  std::int64_t batches() const { return batches_; }  // updated or not: what dropout's masks count
  // Of the next step; zero where the loss is not scaled.
  const LossScaleState& loss_scale() const { return loss_scale_; }
  // A step has ended with these scalars, all kStepControls of them.
  void count_batch(std::span<const double> controls);
  // The same of an asynchronous step, after which so many updates have been made.
  void count_step(std::int64_t updates);

  // The scalars of a step on the device (kernels/step_control.h), with the number of updates so far and the loss scale.
  Tensor control() const { return view(control_, DType::f64, {kStepControls}); }
  const std::map<int, ZeroShard>& shards() const { return shards_; }  // by unit that is held here
  Gradients& gradients() const { return *gradients_; }
  ZeroWeights& weights() { return *weights_; }
  // What the phases of a unit compute with.
  const UnitTensors& unit(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  // Of a pipeline without a flush (parallel/weight_versions.h); none: there is one version. use_version(): phases of
  // the unit compute with that one from now on.
  WeightVersions* versions() const { return versions_.get(); }
  void use_version(int unit, std::int64_t version) {
    units_[static_cast<std::size_t>(unit)].weights = versions_->weights(unit, version);
  }
  // All units compute with the weights that are updated.
  void use_current_weights();
  // The phases of a unit that write its gradients come next.
  void open_gradients(int unit, int micro);
  void close_gradients(int unit) { gradients_->close(unit); }
  // All gradients are whole: calls `window` for those of the unit, which are offloaded, a part at a time. Units in
  // ascending order, before they are updated. What the stream is given then comes after that work.
  void each_gradient_window(int unit, const GlobalNorm::Window& window);
  // ZeRO-3: the unit's weights are gathered; its phases compute with them, and those of a unit whose weight is tied to
  // it.
  void gather(int unit);
  // After the norm: the updates that follow use its results, also when they come beside the next step.
  void hold_control();
  void update(int unit);
  // Where replicas take local steps: they agree on the weights. All ranks call it, after an update.
  bool takes_local_steps() const { return local_ != nullptr; }
  Tensor local_squares() const { return local_->squares(); }  // of the last time
  void synchronize();
  // What the stream is given from now on comes after the unit's last update, where that runs beside it.
  void updated(int unit);
  // What has been moved to the device and back so far.
  Staging::Traffic traffic() const;
  // A tied weight that two stages have: what its owner updates of it, and what the other has a copy of.
  Tensor tied_weight() const;

 private:
  void publish();
  void init_masters(const ZeroShard& shard, std::int64_t begin, const Tensor& masters);
  void init_piece(const ZeroShard::Piece& piece, const Tensor& values);
  void offload();       // sets up how offloaded state is updated
  void settle() const;  // offloaded state may be read and changed by others
  void visit_masters(const ZeroShard& shard, Staging::Access access, const Staging::Work& work);
  void exchange_tied_weight();
  void send_weights();  // to the ranks that did not update them
  void write_control();

  RankSetup& setup_;
  PartialGradients partial_;
  std::unique_ptr<Gradients> gradients_;
  std::map<int, ZeroShard> shards_;
  std::unique_ptr<ZeroWeights> weights_;
  std::unique_ptr<LocalSteps> local_;  // none: all replicas agree in every step
  std::unique_ptr<MaskSteps> masks_;   // none: nothing is ever masked
  std::vector<UnitTensors> units_;
  std::unique_ptr<WeightVersions> versions_;
  std::map<int, int> passes_;                  // by unit of which an update needs something that is offloaded: its pass
  std::map<int, int> norm_passes_;             // by unit whose gradient is offloaded
  std::unique_ptr<Staging> staging_;           // of state that is brought to be updated
  std::unique_ptr<HostUpdates> host_updates_;  // of state that is updated where it is; neither: nothing is offloaded
  Buffer control_, held_control_;              // the second for updates that run beside the next step
  std::int64_t updates_ = 0, batches_ = 0;
  LossScaleState loss_scale_;
};

}  // namespace lockstep
