// What every rank did, and when: spans of time, in a file that Chrome's trace viewer and Perfetto read.
//
// The file is JSON: one event ("ph": "X") per span, one process (pid = rank + 1) per rank, one line (tid = kind + 1)
// per category, times in microseconds, to the nanosecond, from the first one; what a reader needs beside the spans is
// under "otherData". Perfetto takes number 0 for the system's idle task, hence the ones. Spans of one rank and category
// do not overlap.
//
// Messages are spans too, of categories "dp", "pp", "cp" and "tp". Those of one rank and axis may overlap, so they take
// as many lines as they need (tid = kSpanKinds + 1 + axis + kTraceAxes · line). An arrow is a pair of flow events
// ("s", "f") of one id, from the beginning of one message to the end of another. Memory is a counter ("C") per rank.
//
// Reading gives compute and wait: what schedules are drawn from. The file may come from anywhere; UserError
// (bad_input_file) for one that is no trace. Other events, messages and what other programs add, are ignored. Time and
// memory grow with the file, which has at most kMostTraceBytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class SpanKind : std::uint8_t {
  compute,  // an action that computes
  wait,     // the rank is held: what it needs has not come
};
inline constexpr int kSpanKinds = 2;
std::string_view name_of(SpanKind kind);

struct TraceSpan {
  std::string name;  // "block.3 forward": the same for every micro-batch, so that a viewer adds them up
  SpanKind kind = SpanKind::compute;
  int rank = 0;
  std::int64_t step = 0;  // of training
  // Of what belongs to a step of the pipeline's schedule: which of its stage's list, from 0 on; -1: to none.
  int position = -1;
  double begin = 0, end = 0;  // seconds, on one clock for all ranks
  int micro = -1;             // the micro-batch; -1: of none
};

inline constexpr int kTraceAxes = 4;
inline constexpr std::string_view kTraceAxisNames[kTraceAxes] = {"dp", "pp", "cp", "tp"};

// A message of a rank: from its start until the rank had waited for it.
struct TraceMessage {
  std::string name;  // "all_reduce"
  int axis = 0;      // of kTraceAxisNames
  int rank = 0;
  std::int64_t step = 0;
  double begin = 0, end = 0;  // seconds, on the spans' clock
  std::int64_t bytes = 0;     // that it is about
  std::string group = {};     // its name
};

// From the beginning of a message to the end of one that needed it; places in Trace::messages.
struct TraceArrow {
  std::size_t from = 0, to = 0;
};

// What a rank holds from a moment on, by tag.
struct TraceMemory {
  int rank = 0;
  double time = 0;
  std::vector<std::pair<std::string, std::int64_t>> bytes;
};

struct Trace {
  std::string layout;         // as the command line has it; "" where there is none
  std::string schedule;       // of the pipeline, as spec/pipeline/schedule.h writes it; "" without one
  std::vector<int> stage_of;  // by rank, all of them; empty where nobody knows
  std::vector<TraceSpan> spans;
  std::vector<TraceMessage> messages = {};  // these three are written, and not read
  std::vector<TraceArrow> arrows = {};
  std::vector<TraceMemory> memory = {};
  std::optional<double> clock_error = {};  // seconds by which a rank's times may differ from the run's clock

  std::size_t steps() const;  // of training, of which there is something
};

// Of what a file may hold: all bytes, ranks and stages, and the seconds from the first beginning to the last end, below
// which a nanosecond survives in a number of JSON.
inline constexpr std::int64_t kMostTraceBytes = std::int64_t{1} << 30;
inline constexpr int kMostTraceRanks = 1 << 20;
inline constexpr double kLongestTrace = 4e6;

// Beside, then renamed; EnvironmentError where the disk says no.
void write_trace(const std::filesystem::path& file, const Trace& trace);
Trace read_trace(const std::filesystem::path& file);
// The same of a text in memory; `where` names it in messages.
Trace parse_trace(std::string_view text, const std::string& where);

}  // namespace lockstep
