// The saves of a run, as its loop sees them: begun when they are due, reported when they are on the disk, retried when
// they fail.
//
// Where a writer saves beside the training, it retries by itself from the snapshot it has
// (checkpoint/checkpoint_writer.h). Where there is no snapshot, the next try some seconds later saves the state that
// the run has then. In both cases a failure is reported at once, the run continues, and the next save that is due
// replaces the one that failed.
#pragma once
#include <chrono>
#include <string>

#include "train/loop.h"
#include "train/run_events.h"
#include "train/training_run.h"

namespace lockstep {

class Saving {
 public:
  // Run, watcher and events outlive it. `progress` is where the run begins: a run that resumes in its own folder has
  // its first state there already; from another's, it has not.
  Saving(TrainingRun& run, Watcher& watcher, RunEvents& events, const Progress& progress);

  void save(const Progress& progress);  // unless that step is saved, or on its way. All ranks call it.
  void tell();               // reports the results of saves since, to the watcher; the same failure once per minute
  bool wants_again() const;  // a save that failed is to be tried again with the current state; rank 0 decides
  // At the end of the run. Saves, if it is to be saved or the last save is failing, and waits until that is on the
  // disk; false: it holds a weight that is not finite, and was not saved. When the disk does not take it within
  // train.save_retry seconds, all ranks throw (checkpoint/all_or_none.h says who throws what). All ranks call it.
  // `unchanged`: the run has learned nothing. Where it began with a checkpoint of its own, another of the same state
  // would only push an older one out.
  bool finish(const Progress& progress, bool unchanged);
  // The newest step that is on the disk, of this try or, before it has saved one, of an earlier one; -1: none.
  std::int64_t newest() const { return newest_ >= 0 ? newest_ : before_; }

 private:
  using Clock = std::chrono::steady_clock;

  TrainingRun& run_;
  Watcher& watcher_;
  RunEvents& events_;
  std::int64_t begun_, newest_;  // steps whose saves were begun, and are on the disk, last
  std::int64_t before_;          // the newest that was there when the run began: a copy in memory may be of a later one
  double pause_ = 0;             // seconds between the last failure and the next try
  Clock::time_point again_;
  std::string told_;  // why saves fail; empty: the last one did not
  Clock::time_point told_at_;
};

}  // namespace lockstep
