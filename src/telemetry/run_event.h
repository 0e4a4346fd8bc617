// One line of events.jsonl (event_log.h) as it is read: from a file that may come from anywhere.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
inline bool known(double value) { return std::isfinite(value); }

// What a start says of the try before it (event_log.h).
struct LostInTry {
  std::int64_t steps = 0;
  double from = kUnknown, until = kUnknown;
};

struct RunEvent {
  double time = kUnknown;   // seconds since 1970, on the run's clock
  double error = kUnknown;  // its bound, seconds
  int rank = -1;            // -1: an agent's
  std::string kind;         // a name of EventKind, if it is of this version
  std::int64_t step = -1;
  double seconds = kUnknown;  // it took
  std::string text;
  std::string decision;     // a name of Decision; empty: none
  std::int64_t epoch = -1;  // of launch, where it begins
  std::optional<LostInTry> lost = {};
  int culprit = -1;  // the rank that a fault is put down to; -1: none is known
  bool speaks = false;
  // Whether it is of the rank that keeps the log: what it tells of the run counts once.
  bool is_of_keeper() const { return rank == 0 || speaks; }
};

inline constexpr std::size_t kMostEventText = 4096;  // of a text; more is cut

// Nothing: the line is no event.
std::optional<RunEvent> read_run_event(std::string_view line);

}  // namespace lockstep
