// The copies of a run's state in memory, as its loop sees them (checkpoint/state_copy.h): begun after every k-th step,
// complete when the next step is.
//
// So whatever ends the ranks, at most k steps are lost: those since the copy before the last, which was complete when
// the last one was begun. Copies are made under `lockstep launch`, whose agent keeps their memory when the ranks die.
// How often, and whether they are worth it, copy_pace.h says.
//
// A copy that fails, since memory is full or a weight is not finite, ends the copies: one line says so, what they took
// is given back, and a fault costs the steps since the last checkpoint on the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/state.h"
#include "train/copy_pace.h"
#include "train/loop.h"
#include "train/training_run.h"

namespace lockstep {

class Copying {
 public:
  // Run and watcher outlive it. All ranks make theirs, with or without a place alike.
  Copying(TrainingRun& run, Watcher& watcher, Progress& progress, const std::optional<CopyPlace>& place);

  // Before the step after this one; rank 0's wish, which all ranks follow.
  bool wants(std::int64_t step) const { return on_ && run_.is_first_rank() && pace_.wants(step); }
  void copy(const Progress& progress);
  void settle();  // waits for the copy that was begun; all ranks call it when a step is done
  void stepped(Progress& progress, double seconds);  // after settle(), with the step's time
  // The run has gone back to the state of this step: later copies are of a past that is no more, and are removed. All
  // ranks call it.
  void go_back(std::int64_t step);

 private:
  void choose(const CopyPace::Choice& choice, Progress& progress);
  void keep(std::int64_t every, Progress& progress);  // in the resolved run file
  void stop(const std::string& why);

  TrainingRun& run_;
  Watcher& watcher_;
  std::optional<CopyPlace> place_;  // none: copies are not made
  CopyPace pace_;
  bool on_ = false, in_flight_ = false, copied_ = false;
};

}  // namespace lockstep
