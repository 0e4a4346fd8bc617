// A step's timeline drawn: a row per rank with what it computes, and below it, in thinner rows, the messages it takes
// part in, one row per axis of the mesh.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TimelineSpan {
  enum class Kind { forward, backward_input, backward_weight, update, tp, cp, pp, dp };
  Kind kind;
  double begin, end;  // seconds
  std::string label;  // of computing: its micro-batch, drawn once for a run of spans; of a message: drawn if it fits
  std::string tip;    // shown when pointed at
};
inline constexpr int kTimelineKinds = 8;
constexpr bool is_message(TimelineSpan::Kind kind) { return kind >= TimelineSpan::Kind::tp; }

struct TimelineRow {
  std::string label, detail;  // "rank 3", and its place in the mesh
  std::vector<TimelineSpan> spans;
  double gap_before = 0;  // pixels, to set groups of rows apart
};

struct StepTimelineOptions {
  std::string title = {}, subtitle = {};
  double width = 1000;         // pixels of the time axis
  double compute_height = 17;  // of a row
  double message_height = 4;
};
std::string step_timeline_picture(std::span<const TimelineRow> rows, const StepTimelineOptions& options);

// For how long messages run while nothing is computed, and all of them together.
struct MessageTime {
  double exposed = 0, all = 0;
};
MessageTime message_time(const TimelineRow& row);

}  // namespace lockstep
