// Where a rank is in a window of a pipeline without a flush (spec/pipeline/pipedream.h): its lists count micro-batches
// and versions from their step's beginning, and this says what they are of the window, the batch and the gradient.
#pragma once
#include <cstdint>

#include "spec/pipeline/pipedream.h"

namespace lockstep {

class PipeDreamWindow {
 public:
  explicit PipeDreamWindow(const PipeDreamStage& stage) : stage_(stage) {}

  const PipeDreamStage& stage() const { return stage_; }
  bool is_empty() const { return steps_ == 0; }
  void begin_step() { list_ = steps_++; }
  // The list that drains counts as that of one more step would.
  void begin_drain() {
    list_ = steps_;
    drains_ = true;
  }
  void end() {
    steps_ = list_ = 0;
    drains_ = false;
  }

  std::int64_t version(int counted) const { return list_ * stage_.updates_per_step() + counted; }
  // Of a micro-batch: which of the places of activations it has, used in turn; its number in its own step; how many
  // steps before the newest batch that was; and its number in the sum of its gradient, which the first one begins.
  int place(int micro) const { return static_cast<int>((list_ * stage_.micro + micro) % stage_.in_flight()); }
  int of_step(int micro) const { return micro < 0 ? micro + stage_.micro : micro; }
  int steps_before(int micro) const { return micro < 0 && !drains_ ? 1 : 0; }
  int of_gradient(int micro) const { return stage_.accumulates() ? of_step(micro) : 0; }

 private:
  PipeDreamStage stage_;
  std::int64_t steps_ = 0;  // begun since the pipeline was empty
  std::int64_t list_ = 0;   // the step whose list runs
  bool drains_ = false;
};

}  // namespace lockstep
