// Any bytes at all are either a trace, and then all its numbers are within their bounds and a pipeline that it holds
// can be drawn, or a UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "pictures/pipeline_picture.h"
#include "plan/measured_timeline.h"
#include "telemetry/trace.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

void check(const lockstep::Trace& trace) {
  for (const lockstep::TraceSpan& span : trace.spans) {
    require(span.rank >= 0 && span.rank < lockstep::kMostTraceRanks && span.step >= 0 && span.position >= -1);
    require(trace.stage_of.empty() || span.rank < static_cast<int>(trace.stage_of.size()));
    require(span.begin >= 0 && span.end >= span.begin && span.end <= 2 * lockstep::kLongestTrace);
  }
  for (const int stage : trace.stage_of) require(stage >= 0 && stage < lockstep::kMostTraceRanks);
}

void draw(const lockstep::Trace& trace) {
  const lockstep::MeasuredTimeline measured = lockstep::measured_timeline(trace, std::nullopt, "fuzz");
  require(measured.bubble() <= 1 + 1e-9);
  const lockstep::PicturePanel panels[] = {{measured.line, ""}, {lockstep::ideal_timeline(measured, 0), ""}};
  for (const lockstep::PicturePanel& panel : panels) require(!lockstep::text_picture(panel.line, {}).empty());
  require(!lockstep::svg_picture(panels, {}).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::Trace trace = lockstep::parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz");
    check(trace);
    draw(trace);
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  return 0;
}
