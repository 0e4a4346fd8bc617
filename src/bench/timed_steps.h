// A run's steps one after the other, as the loop gives them to the stream.
#pragma once
#include <cstdint>

#include "train/training_run.h"

namespace lockstep {

class TimedSteps {
 public:
  explicit TimedSteps(TrainingRun& run) : run_(run) {}
  void take(int count) {
    const TrainSpec& train = run_.spec().train;
    int begun = 0;
    for (int done = 0; done < count; ++done) {
      for (; begun < count && begun - done < run_.steps_at_once(); ++begun)
        run_.begin_step(train.global_batch * taken_++, run_.spec().optimizer.learning_rate);
      run_.finish_step();
    }
  }

 private:
  TrainingRun& run_;
  std::int64_t taken_ = 0;
};

}  // namespace lockstep
