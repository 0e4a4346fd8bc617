// RUN/events.jsonl: what happened in a run, and when, of every rank on the run's clock.
//
// A line is one JSON object: {time, error, rank, kind, step, seconds, text}, and where they are known decision, epoch,
// ranks, lost {steps, from, until}, culprit. `time` is in seconds since 1970 on the run's clock (train/run_clock.h) and
// `error` its bound, null where clocks are not compared; `seconds` is how long it took, null of what takes no time;
// `rank` is null of what an agent of `lockstep launch` says of no rank; `culprit` is the rank that a fault is put down
// to, which is seldom the one that tells (culprit.h); `speaks` is true where this rank keeps the log and is not rank 0:
// of servers whose workers may die. Lines are in the order in which rank 0 learned of them, not of
// their times.
//
// Steps are sampled (step_sampling.h), all ranks of a step or none; other kinds are always written. Opening for a run
// that resumes keeps the lines of steps up to the checkpoint and continues with the interval that their number implies;
// what was before the resumption and does not happen again (all but step, save, saved, evaluation) is kept whatever its
// step. A line that the disk does not take is kept and written later (appended_file.h). Only construction throws:
// EnvironmentError.
//
// Used by one thread at a time.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "telemetry/appended_file.h"
#include "telemetry/step_sampling.h"

namespace lockstep {

enum class EventKind : std::uint8_t {
  start,  // a try begins to train; `seconds`: its set-up before
  step,
  save,
  saved,
  evaluation,
  fault,  // of a rank, or found by an agent; `seconds`: from when it happened to when it was found, if known
  stall,
  clock,
  end,
  restart,   // by an agent: a fault is overcome; `seconds`: from its discovery to the next completed step
  decision,  // by an agent: what follows a fault, or a host that came or went
  slow,      // a rank computes at less than half the speed of its peers (slow_ranks.h); `seconds`: per step
  slow_end,  // it does no longer
  rewind,    // after a loss spike, to an earlier step; `seconds`: until training continued
  relayout,  // before a step: a mask grew and the state of what stays was laid out anew; `seconds`: it took
  leave,     // an asynchronous worker is lost, and the others go on; `seconds`: of its work that are lost
  join,      // one has joined; `seconds`: since it was lost, or the run began
};
inline constexpr int kEventKinds = 17;
std::string_view name_of(EventKind kind);

// What an agent decides.
enum class Decision : std::uint8_t {
  same,    // the same hosts start their ranks again
  spare,   // a spare takes the place of a host that was lost
  shrink,  // fewer ranks
  grow,    // more ranks, up to what the run began with
  wait,    // for hosts
  end,     // the run ends: restarting does not help, or was done too often
  go_on,   // the others do, who do not need the one that failed
};
inline constexpr int kDecisions = 7;
std::string_view name_of(Decision decision);

// What a try that resumes has cut from metrics.jsonl: steps that are computed again.
struct LostSteps {
  std::int64_t steps = 0;
  double from = 0, until = 0;  // when the last step that is kept, and the last that is lost, ended; seconds since 1970
};

struct LoggedEvent {
  double time = 0;                   // seconds since 1970, when it began, of a step and an evaluation when it ended
  std::optional<double> error = {};  // seconds
  int rank = 0;
  EventKind kind = EventKind::step;
  std::int64_t step = 0;
  std::optional<double> seconds = {};
  std::string text = {};
  // Where they are known; lines do without the others.
  std::optional<Decision> decision = {};   // of a decision and of the restart that follows it
  std::optional<std::int64_t> epoch = {};  // of launch, that begins with the decision or the restart
  std::optional<std::int64_t> ranks = {};  // that train from then on
  std::optional<LostSteps> lost = {};      // of a start that resumes
  std::optional<int> culprit = {};         // of a fault
  bool speaks = false;                     // the rank that keeps the log, where that is not rank 0
};
inline constexpr int kOfTheAgent = -1;  // the rank of what an agent tells, and which is of no rank: null in the line

std::string to_json_line(const LoggedEvent& event);

// What another rank tells rank 0, in a few numbers.
struct RankEvent {
  std::optional<EventKind> kind = {};  // nothing: there was none
  std::int64_t step = 0;
  double time = 0;      // on the run's clock
  double seconds = -1;  // -1: it takes no time
};
inline constexpr std::size_t kEventsATell = 3;
struct ToldEvents {
  std::optional<double> error = {};  // of the rank's times now
  double step_seconds = 0;           // of the step that has ended since; 0: none has
  std::array<RankEvent, kEventsATell> events{};
};

class EventLog {
 public:
  struct Options {
    std::int64_t last_step = 0;  // of the checkpoint that the run resumes from; 0 starts anew, unless
    std::int64_t every = 1;      // the first interval of steps; 0: none
    bool resumes = false;        // it resumes, though it has no checkpoint yet
  };
  EventLog(const std::filesystem::path& path, const Options& options);

  void write(const LoggedEvent& event);
  const std::string& failure() const { return file_.failure(); }  // why not all lines are written; empty: all are
  std::int64_t dropped() const { return file_.dropped(); }        // lines that will never be

 private:
  int open(const std::filesystem::path& path, const Options& options);
  bool wants(const LoggedEvent& event);

  std::optional<StepSampling> sampling_;
  std::int64_t step_ = -1;  // the last one asked about
  bool wanted_ = false;
  AppendedFile file_;
};

// Adds a line from a rank that may not be the one that has the log open: one that fails. Does nothing where there is no
// log. Never throws.
void append_event(const std::filesystem::path& path, const LoggedEvent& event) noexcept;

}  // namespace lockstep
