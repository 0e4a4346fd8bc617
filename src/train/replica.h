// One rank's copy of a model being trained: parameters, gradients, optimizer state, activations, and the step over
// them.
//
// Runs on any device; on meta it allocates and computes nothing, and its memory's ledger and its stream's counts are
// what a real one would have. Memory and stream outlive it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "parallel/unit_storage.h"
#include "spec/optimizer_spec.h"
#include "spec/precision.h"

namespace lockstep {

class Replica {
 public:
  struct Options {
    ModelSpec spec;
    std::int64_t B;  // samples of a batch
    std::int64_t T;  // tokens of a sample
    Precision precision = Precision::fp32;
    OptimizerSpec optimizer = {};
    std::uint64_t seed = 0;
    // The phases in another order, each once, dependencies kept (weight phases may come late); empty: the model's own.
    std::vector<Moment> order = {};
  };

  Replica(const Options& options, Memory& memory, Stream& stream);

  // A logical tensor and where it lives: its elements of the master weights and of the gradients.
  struct Named {
    LogicalTensor tensor;
    Tensor master;
    Tensor gradient;
  };
  std::vector<Named> tensors() const;

  void init_weights();                             // from the seed and the tensors' names
  void load(std::span<const ConstTensor> values);  // in the order of tensors(), host tensors of any float type

  struct Result {
    double loss;   // mean over the targets that count
    double norm;   // of the gradient, before clipping
    bool updated;  // false: something was not finite, and nothing changed
  };
  // One training step on (B, T) tokens and their targets (kIgnoredTarget = no loss there).
  Result step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  // The two halves of it: forward and backward, then norm, clipping and update.
  double compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
  Result apply_gradients();
  // Forward alone: the loss, and the logits (B·T, V) when a host buffer for them is given, in the accumulator type's
  // values.
  double evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                  std::span<double> logits = {});

  const Model& model() const { return model_; }
  std::int64_t steps_done() const { return steps_done_; }

 private:
  Batch set_batch(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, bool training);
  double run(const std::vector<Moment>& order, const Batch& batch);
  double mean_loss() const;
  Call call(int unit, const Batch& batch) const { return {tensors_of_[unit], activations_, batch, stream_}; }

  Options options_;
  Memory& memory_;
  Stream& stream_;
  Model model_;
  std::vector<Moment> order_;
  std::vector<UnitStorage> storage_;
  std::vector<UnitTensors> tensors_of_;
  Activations activations_;
  Buffer tokens_, targets_, positions_, cos_, sin_, loss_scale_, bins_, control_;
  std::int64_t valid_targets_ = 0;
  std::int64_t steps_done_ = 0;    // updates: what the optimizer's bias correction counts
  std::int64_t batches_done_ = 0;  // batches, updated or not: what dropout's masks count
  double last_loss_ = 0;
};

}  // namespace lockstep
