// RUN/events.jsonl: what happened in a run, and when, of every rank on the run's clock.
//
// A line is one JSON object: {time, error, rank, kind, step, seconds, text}. `time` is in seconds since 1970 on the
// run's clock (train/run_clock.h) and `error` its bound, null where clocks are not compared; `seconds` is how long it
// took, null of what takes no time. Lines are in the order in which rank 0 learned of them, not of their times.
//
// Steps are sampled (step_sampling.h), all ranks of a step or none; other kinds are always written. Opening for a run
// that resumes keeps the lines of steps up to the checkpoint and continues with the interval that their number implies;
// what was before the resumption and does not happen again (start, fault, stall, clock, end, restart) is kept whatever
// its step. A line that the disk does not take is kept and written later (appended_file.h). Only construction throws:
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

enum class EventKind : std::uint8_t { start, step, save, saved, evaluation, fault, stall, clock, end, restart };
inline constexpr int kEventKinds = 10;
std::string_view name_of(EventKind kind);

struct LoggedEvent {
  double time = 0;                   // seconds since 1970, when it began, of a step and an evaluation when it ended
  std::optional<double> error = {};  // seconds
  int rank = 0;
  EventKind kind = EventKind::step;
  std::int64_t step = 0;
  std::optional<double> seconds = {};
  std::string text = {};
};

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
    std::int64_t last_step = 0;  // of the checkpoint that the run resumes from; 0 starts anew
    std::int64_t every = 1;      // the first interval of steps; 0: none
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
