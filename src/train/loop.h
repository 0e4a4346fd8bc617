// The training loop.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/state.h"
#include "telemetry/event_log.h"
#include "telemetry/step_record.h"
#include "train/training_run.h"

namespace lockstep {

// Who watches a run. Everything is called from the loop's thread, between steps.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void stepped(const StepRecord&) {}
  // Where the time of that step went, by rank, and what this rank sent: after stepped() of a record that says so,
  // unless the run ends before. Where steps overlap, the times are those of the step before, which ranks have told.
  virtual void timed(std::int64_t /*step*/, const std::vector<TimesByUse>&, const std::vector<SentByAxis>&) {}
  virtual void evaluated(const EvalRecord&) {}
  virtual void saving(std::int64_t /*step*/) {}  // its save was begun, from the tensors as they are at this moment
  virtual void saved(std::int64_t /*step*/) {}   // it is on the disk, and was read back
  // Rank 0's hears of all ranks; another rank's of the fault that ends that rank.
  virtual void happened(const LoggedEvent&) {}
  virtual void note(const std::string& /*line*/) {}          // something a person should know
  virtual void resolved(const std::string& /*run_file*/) {}  // the resolved run file has changed: products were timed
  virtual bool wants_stop() { return false; }                // asked before each step: true saves and ends the run
  virtual void ended_by(const std::string& /*reason*/) {}    // of an Ending that is no success, in one line
};

enum class Ending { finished, stopped, bad_values };

struct LoopOptions {
  std::optional<double> peak_flops = {};  // of the machine, for MFU
  std::optional<double> link = {};        // bytes a second that a rank can send (train/link_probe.h)
  std::optional<CopyPlace> copies = {};   // none: the state is not copied into memory
};

// Every rank calls it, with a watcher of its own. Trains from `progress` until spec.train.steps are done, the watcher
// wants to stop, a value was not finite and the run says stop, or the data of a rank cannot be read. Whatever the
// ending, the last good state is saved (unless it was saved already, or save_last is false) and on the disk when this
// returns or throws; weights that are not finite are never saved, and their run is one of bad values. `progress` is
// brought up to date step by step.
//
// Where steps overlap (spec/pipeline/pipedream.h), the state is made whole before it is saved, copied or evaluated, and
// two steps are in flight: what a rank wishes comes true a step later, and a rank whose data cannot be read throws at
// once, which the others see as a lost rank.
//
// A save that fails is reported and tried again; the run continues (train/saving.h).
//
// Failure: what the data's source throws when it cannot be read, on the rank that reads it, and CommError that names
// that rank on others, after the save; the disk's error when the last state could not be saved; CommError when a rank
// is lost.
Ending train(TrainingRun& run, Progress& progress, Watcher& watcher, const LoopOptions& options = {});

}  // namespace lockstep
