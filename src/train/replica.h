// One rank's copy of a model being trained on its part of every batch: parameters, gradients, optimizer state,
// activations, and the executor of the step's actions over them.
//
// Runs on any device; on meta it allocates and computes nothing, and its memory's ledger and its stream's counts are
// what a real one would have. Memory and stream outlive it.
//
// A step never makes the device wait for the host: the batch and the learning rate go to it, the losses and the norm
// come from it, by copies in the stream's order; how many updates there were is counted on the device. Where the stream
// runs ahead, the step's actions are captured when it is first repeated, and from then on given as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "kernels/step_control.h"
#include "model/model.h"
#include "parallel/central_dp.h"
#include "parallel/context_parallel.h"
#include "parallel/global_norm.h"
#include "parallel/gradients.h"
#include "parallel/mesh_groups.h"
#include "parallel/partial_gradients.h"
#include "parallel/pipeline_links.h"
#include "parallel/tensor_parallel.h"
#include "parallel/zero_groups.h"
#include "parallel/zero_shards.h"
#include "parallel/zero_weights.h"
#include "spec/layout/layout_spec.h"
#include "spec/model/precision.h"
#include "spec/run/optimizer_spec.h"
#include "train/batch_buffers.h"
#include "train/phase_counter.h"
#include "train/rank_step.h"
#include "train/step_watch.h"

namespace lockstep {

class Replica {
 public:
  // The ranks of the layout's mesh (spec/layout/layout_spec.h), each with a part of the batch and of every layer: for
  // tensors, which are where the replica is, and for numbers of the host. They outlive the replica.
  struct Ranks {
    Communicator& replicas;
    Communicator& hosts;
  };
  struct Options {
    ModelSpec spec;
    std::int64_t B;          // samples of a step's batch, over all ranks; who takes which of them, share_of says
    std::int64_t T;          // tokens of a sample
    LayoutSpec layout = {};  // of ranks() ranks
    PrecisionSpec precision = {};
    OptimizerSpec optimizer = {};
    std::uint64_t seed = 0;
    // The step in another order (spec/step/actions.h says which are allowed); empty: by the layout's schedule.
    std::vector<Action> actions = {};
    // Of another rank of the same run, and of one that has the same part of every layer and sample; none: made here.
    std::shared_ptr<const StepLists> lists = {};
    std::shared_ptr<const Model> model = {};
    Execution how = {};              // runs_on is the stream's own device, or what meta stands for
    bool halt_on_bad_value = false;  // the first step whose norm is not finite keeps all later ones from updating
    bool capture = true;             // of steps that are repeated; false: action by action, every time
  };

  Replica(const Options& options, Memory& memory, Stream& stream);  // alone
  Replica(const Options& options, const Ranks& ranks, Memory& memory, Stream& stream);

  // A logical tensor and what of it lives here, of the master weights and of the gradients: runs of its elements within
  // two flat tensors. Where ranks cut it between them that may be a part of it, or nothing; tensors of layers that are
  // another stage's are not there at all.
  struct Named {
    LogicalTensor tensor;
    std::vector<Run> runs;
    bool counted;  // false: another rank of its layer has the same and answers for it
    Tensor master;
    Tensor gradient;
    // Of all its values on the host, and those of one of the two tensors.
    void put(std::span<const double> here, std::span<double> there) const;
    void take(std::span<double> here, std::span<const double> there) const;
  };
  std::vector<Named> tensors() const;
  // Everything a checkpoint keeps of the tensors: master weights and the optimizer's state, piece by piece; all that is
  // here, or without what another rank of the same layer answers for.
  std::vector<StateTensor> state(bool counted_alone = false) const;

  void init_weights();  // from the seed and the tensors' names
  // In the order of logical_tensors() of the model, whole host tensors of any float type; what is another stage's is
  // passed over.
  void load(std::span<const ConstTensor> values);
  // After the tensors of state() were filled from a checkpoint: goes on as the replica that was saved.
  void resume(std::int64_t batches, std::int64_t updates);

  struct Result {
    double loss;   // mean over the targets that count
    double norm;   // of the gradient, before clipping
    bool updated;  // false: something was not finite, and nothing changed
  };
  // The samples of the global batch that this rank is given by its caller: its own; or, where rank 0 deals them out,
  // all of them on rank 0 and none elsewhere.
  Share given() const;
  // One training step on (given().count, T) tokens and their targets (kIgnoredTarget = no loss there).
  Result step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  // The same in two calls: begin gives all its work to the stream; finish waits for the oldest step begun. Up to
  // kStepsInFlight may be begun and not finished: the host then prepares a step while the device works at the last.
  static constexpr int kStepsInFlight = BatchBuffers::kPlaces;
  void begin_step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  Result finish_step();
  // Waits for what the last step has left under way: weights that are being published, which the next would wait for.
  // All ranks call it before they part.
  void settle();
  int steps_in_flight() const { return static_cast<int>(begun_ - finished_); }
  // Another cut of it: forward and backward, then norm, clipping and update.
  double compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  Result apply_gradients();
  void set_learning_rate(double rate) { options_.optimizer.learning_rate = rate; }  // of the steps to come
  // Forward alone: the loss, and the logits of this rank's samples (its share's count · T, V) when a host buffer for
  // them is given, of zeros, in the accumulator type's values.
  double evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                  std::span<double> logits = {});
  // After a step that did not update: computes its gradients again, with its own dropout masks, and says which tensor
  // was the first to hold a value that is not finite, in the order of the actions, and on which rank; nothing when all
  // are finite. `later`: steps finished since, none of which updated. All ranks call it and are told the same.
  std::optional<std::string> find_bad_value(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                                            std::int64_t later = 0);

  // Shows the steps to come, until it is told otherwise (null). Where the stream runs ahead, they wait for it after
  // every action, so that what is seen is what happens. No step is in flight.
  void show(StepWatch* watch);
  // On meta: phases that the counter has counted do not run, until it is told otherwise (null). It outlives the steps.
  void count_by(PhaseCounter* counter);

  const Model& model() const { return model_; }
  std::shared_ptr<const Model> shared_model() const { return shared_model_; }
  const RankStep& rank_step() const { return step_; }
  const std::vector<Action>& actions() const { return step_.actions; }
  std::int64_t steps_done() const { return steps_done_; }

 private:
  Replica(const Options& options, std::array<std::unique_ptr<Communicator>, 2> alone, const Ranks* ranks,
          Memory& memory, Stream& stream);
  void run(const Action& action, bool training, std::int64_t batch_number);
  std::int64_t dp_rank() const { return options_.layout.dp_rank(ranks_.hosts.rank()); }
  bool central() const { return options_.layout.dp_kind == DpKind::central; }
  Memory& sent_memory() { return seen_by_others_ ? *seen_by_others_ : memory_; }
  Share own() const { return share_of(options_.B, options_.layout, dp_rank()); }
  int micros() const { return static_cast<int>(options_.layout.micro); }
  bool has(int unit) const { return step_.shape.has(unit); }
  void set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place);
  void publish();
  void exchange(const Action& action, bool training = true);
  void exchange_tied_weight();
  const Activations& activations(int micro, bool training) const {
    return training ? activations_.of(micro) : activations_.of_forwards(micro);
  }
  Tensor handed_on(const Action& action, bool training) const;
  void run_phase_of(const Action& action, bool training, std::int64_t batch_number);
  void gather(int unit);
  void take_norm();
  void write_controls();
  void run_step(std::int64_t batch_number);
  Tensor control() const { return view(control_, DType::f64, {kStepControls}); }
  Call call(const Action& action, const Batch& batch) const;
  std::vector<Slot> written_by(const Action& action) const;
  std::optional<std::string> bad_value_after(const Action& action) const;
  std::optional<std::string> earliest_of(std::int64_t place, const std::string& words);

  Options options_;
  std::array<std::unique_ptr<Communicator>, 2> alone_;  // only where there are no others
  Ranks ranks_;
  MeshGroups mesh_, mesh_hosts_;
  TensorParallel tensor_;
  Memory& memory_;
  Stream& stream_;
  std::shared_ptr<const Model> shared_model_;
  const Model& model_;
  RankStep step_;
  std::size_t norm_at_ = 0;  // where in its actions the gradients are whole
  PipelineLinks links_;
  ZeroGroups groups_;
  std::unique_ptr<Memory> seen_by_others_;  // where what is sent lies, if the ranks have such memory
  PartialGradients partial_;
  std::unique_ptr<Gradients> gradients_;
  std::optional<ContextParallel> context_;  // where samples are cut
  std::map<int, ZeroShard> storage_;        // of the units that are here, and a tied weight's that is used here
  std::optional<ZeroWeights> weights_;
  std::vector<UnitTensors> tensors_of_;
  std::optional<CentralDp> central_loss_;
  std::vector<std::int32_t> dealt_;  // tokens from rank 0
  StepActivations activations_;
  BatchBuffers batch_;
  std::optional<GlobalNorm> norm_;
  Buffer control_;
  std::int64_t steps_done_ = 0;    // updates: what the optimizer's bias correction counts
  std::int64_t batches_done_ = 0;  // batches, updated or not: what dropout's masks count
  double last_loss_ = 0;

  // The scalars of a step on their way: the learning rate to the device, all of them back.
  struct InFlight {
    HostBuffer rate, controls;
    std::unique_ptr<Event> done;
  };
  std::array<InFlight, kStepsInFlight> flights_;
  std::int64_t begun_ = 0, finished_ = 0;  // steps, since this was made
  bool repeats_ = false;                   // its steps are the same work each time
  std::unique_ptr<Replay> replay_;
  StepWatch* watch_ = nullptr;
  PhaseCounter* counter_ = nullptr;
};

}  // namespace lockstep
