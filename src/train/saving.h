// The saves of a run, as its loop sees them: begun when they are due, told when they are on the disk, tried again when
// they fail.
//
// Where saves are written beside the training, the writer tries again by itself from the snapshot it has
// (checkpoint/checkpoint_writer.h). Where they are not, there is no snapshot, and what is tried again some seconds
// later is the state that the run has then. In both a failure is told at once, the run continues, and the next save
// that is due takes the place of the one that failed.
#pragma once
#include <chrono>
#include <string>

#include "train/loop.h"
#include "train/training_run.h"

namespace lockstep {

class Saving {
 public:
  // Run and watcher outlive it. `progress` is where the run begins: a run that resumes in its own folder has its first
  // state there already; from another's, it has not.
  Saving(TrainingRun& run, Watcher& watcher, const Progress& progress);

  void save(const Progress& progress);  // unless that step is saved, or on its way. All ranks call it.
  void tell();               // what has become of saves since, to the watcher; the same failure once a minute
  bool wants_again() const;  // a save that failed is to be tried again with the state of now; rank 0's word counts
  // At the end of the run. Saves, if it is to be saved or the last save is failing, and waits until that is on the
  // disk; false: it holds a weight that is not finite, and was not saved. When the disk does not take it within
  // train.save_retry seconds, all ranks throw (checkpoint/all_or_none.h says who throws what). All ranks call it.
  bool finish(const Progress& progress);
  std::int64_t newest() const { return newest_; }  // the step that was told as saved last; -1: none

 private:
  using Clock = std::chrono::steady_clock;

  TrainingRun& run_;
  Watcher& watcher_;
  std::int64_t begun_, newest_;  // steps whose saves were begun, and are on the disk, last
  double pause_ = 0;             // seconds between the last failure and the next try
  Clock::time_point again_;
  std::string told_;  // why saves fail; empty: the last one did not
  Clock::time_point told_at_;
};

}  // namespace lockstep
