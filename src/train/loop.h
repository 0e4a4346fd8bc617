// The training loop.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/state.h"
#include "telemetry/step_record.h"
#include "train/training_run.h"

namespace lockstep {

// Who watches a run. Everything is called from the loop's thread, between steps.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void stepped(const StepRecord&) {}
  virtual void evaluated(const EvalRecord&) {}
  virtual void saved(std::int64_t /*step*/) {}       // its copy is taken; it may still be on its way to the disk
  virtual void note(const std::string& /*line*/) {}  // something a person should know
  virtual void resolved(const std::string& /*run_file*/) {}  // the resolved run file has changed: products were timed
  virtual bool wants_stop() { return false; }                // asked after each step: true saves and ends the run
};

enum class Ending { finished, stopped, bad_values };

struct LoopOptions {
  std::optional<double> peak_flops;  // of the machine, for MFU
};

// Every rank calls it, with a watcher of its own. Trains from `progress` on until spec.train.steps are done, the
// watcher wants to stop, or a value was not finite and the run says stop. Whatever the ending, the last good state is
// saved (unless it was saved already, or save_last is false) and on the disk when this returns. `progress` is brought
// up to date step by step.
Ending train(TrainingRun& run, Progress& progress, Watcher& watcher, const LoopOptions& options = {});

}  // namespace lockstep
