// What every rank did, and when: spans of time, in a file that Chrome's trace viewer and Perfetto read.
//
// The file is JSON: an event ("ph": "X") a span, a line (tid) a rank and category, times in microseconds from the
// first one; what a reader needs beside the spans is under "otherData". Spans of one rank and category do not overlap.
//
// Reading: UserError (bad_input_file) for whatever is no such file; it may come from anywhere.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class SpanKind : std::uint8_t {
  compute,  // an action that computes
  wait,     // the rank is held: what it needs has not come
  message,  // from the start of a message until the rank knows that it has arrived
};
inline constexpr int kSpanKinds = 3;
std::string_view name_of(SpanKind kind);

struct TraceSpan {
  std::string name;  // "forward(3, 0)"
  SpanKind kind = SpanKind::compute;
  int rank = 0;
  std::int64_t step = 0;  // of training
  // Of what belongs to a step of the pipeline's schedule: which of its stage's list, from 0 on; -1: to none.
  int position = -1;
  double begin = 0, end = 0;  // seconds, on one clock for all ranks
};

struct Trace {
  std::string layout;         // as the command line has it; "" where there is none
  std::string schedule;       // of the pipeline, as spec/pipeline_schedule.h writes it; "" without one
  std::vector<int> stage_of;  // by rank
  std::vector<TraceSpan> spans;
};

// Beside, then renamed; EnvironmentError where the disk says no.
void write_trace(const std::filesystem::path& file, const Trace& trace);
Trace read_trace(const std::filesystem::path& file);

}  // namespace lockstep
