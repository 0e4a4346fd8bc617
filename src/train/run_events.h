// What happens in a run, of every rank on the run's clock, brought to rank 0, which tells its watcher
// (telemetry/event_log.h); and when clocks are compared.
//
// A rank's events travel in the message in which ranks agree whether another step follows (TrainingRun::tell_ranks), a
// few per step; what is left at the end is gathered once. Texts are rank 0's own, but for those of the end.
//
// Clocks are compared when the run starts, after a stall, before a trace, and when the stated error would pass
// run.clock_error; never otherwise. All ranks decide alike, from what all have told. A step is a stall when it took
// kStallFactor times as long as the median of those before, and kStallSeconds longer.
//
// Slow ranks are looked for by slow_ranks.h, in what each computes per step, among ranks of one stage (and, where
// cp_order=plain gives parts of a sample other work, of one such part).
//
// One thread uses it, its rank's. All ranks make theirs, and call compare(), heard() and finish(), at the same points.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/event_log.h"
#include "telemetry/slow_ranks.h"
#include "train/loop.h"
#include "train/run_clock.h"
#include "train/training_run.h"

namespace lockstep {

class RunEvents {
 public:
  static constexpr double kStallFactor = 4, kStallSeconds = 0.25;
  static constexpr std::size_t kUsualSteps = 16, kFewestSteps = 4;

  // Compares the clocks. Run and watcher outlive it.
  RunEvents(TrainingRun& run, Watcher& watcher, std::int64_t first_step);

  const RunClock& clock() const { return clock_; }
  double now() const { return clock_.now(); }  // this rank's reading

  struct Event {
    EventKind kind = EventKind::step;
    std::int64_t step = 0;
    std::optional<double> began = {};    // this rank's reading; nothing: now
    std::optional<double> seconds = {};  // it took
    std::string text = {};
  };
  void add(const Event& event);
  // An asynchronous worker was lost, or has joined.
  void changed(std::int64_t step, const WorkerChange& change);
  // The step has just ended.
  void stepped(std::int64_t step, double seconds);
  // What ended the run on this rank, which can tell no other rank any more: told to its own watcher.
  void failed(std::int64_t step, const std::exception& error);

  // What this rank tells the others, and whether its clock is to be compared.
  ToldEvents tell();
  bool wants_comparison() const;
  // What all ranks have told, by rank.
  void heard(const TrainingRun::Told& told);
  // Compares where that is due, or `tracing` begins; whether it has.
  bool compare_if_due(std::int64_t step, bool tracing);
  // When the run has ended well.
  void finish(std::int64_t step, const std::string& how);

 private:
  void compare(std::int64_t step, const std::string& why);
  void look_for_stall(const TrainingRun::Told& told);
  void look_for_slow_ranks(const TrainingRun::Told& told);
  void log(const LoggedEvent& event);  // on rank 0
  void log_of(int rank, const RankEvent& event, std::optional<double> error);
  LoggedEvent logged(const Event& event) const;

  TrainingRun& run_;
  Watcher& watcher_;
  RunClock clock_;
  const int rank_;                // of those that are told of, all or a party (comm/apart/ranks.h)
  const int first_;               // the first of those, in the mesh
  std::int64_t last_step_ = 0;    // that has ended
  double last_seconds_ = 0;       // that it took
  double untold_seconds_ = 0;     // likewise, until it is told
  std::deque<RankEvent> untold_;  // of another rank than 0
  std::vector<double> usual_;     // seconds of the last steps, of the slowest rank
  std::int64_t steps_seen_ = 0;
  SlowRanks slow_;
  std::string due_;  // why clocks are to be compared; empty: they are not
};

}  // namespace lockstep
