// Whether a run whose ranks have ended starts again: the rules, as plain data.
//
// An ending that the user must mend (usage, memory, inputs, checkpoints, a check that said no, Ctrl-C twice) is final,
// and so is success. Whatever else ends the ranks (a signal, exit code 5) is a fault, after which the same ranks resume
// from their newest checkpoint. There are two bounds: `most_restarts` of the whole run, and kMostWithoutProgress faults
// in a row without a step completed that no earlier try had completed. The second is the sign of a fault that happens
// again whatever one does: a step that crashes, a disk that is full. Its reason says what the faults have in common:
// the place where they happened, so that this is bad, or nothing, so that the step or its data are.
#pragma once
#include <cstdint>
#include <set>
#include <string>

namespace lockstep {

struct RanksEnd {
  int code = 0;                // the exit code; 128 + the signal that ended them
  std::int64_t last_step = 0;  // the last that was completed
  std::string found = {};      // why the agent ended them itself; empty: it did not
  std::string place = {};      // the host or slot to blame; empty: it is not known, or there is only one
};

struct RestartDecision {
  bool restarts = false;
  int code = 0;             // the launch's own, where it does not
  std::string reason = {};  // of a fault: what has happened, and what follows
};

class RestartPolicy {
 public:
  static constexpr int kMostWithoutProgress = 3;

  explicit RestartPolicy(int most_restarts) : most_restarts_(most_restarts) {}

  // `stopping`: the user has asked the run to end.
  RestartDecision decide(const RanksEnd& end, bool stopping);
  int restarts() const { return restarts_; }

 private:
  int most_restarts_, restarts_ = 0;
  std::int64_t furthest_ = -1;         // step
  int without_progress_ = 0;           // faults in a row
  std::set<std::string> places_ = {};  // of those
};

}  // namespace lockstep
