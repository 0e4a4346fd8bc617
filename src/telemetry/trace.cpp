// Writes traces line by line, so that memory does not grow with them.
#include "telemetry/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "telemetry/partial_file.h"

namespace lockstep {

std::string_view name_of(SpanKind kind) {
  constexpr std::string_view kNames[kSpanKinds] = {"compute", "wait"};
  return kNames[static_cast<int>(kind)];
}

std::size_t Trace::steps() const {
  std::set<std::int64_t> seen;
  for (const TraceSpan& span : spans) seen.insert(span.step);
  return seen.size();
}

namespace {

// In quotes; bytes that are not UTF-8 are replaced, since a trace should not fail for a name.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

// Names for the viewer. Sorted by rank and kind: it would otherwise sort by name, 10 before 2.
void name_lines(PartialFile& out, const Trace& trace, const char*& separator) {
  std::set<int> ranks;
  for (int r = 0; r < static_cast<int>(trace.stage_of.size()); ++r) ranks.insert(r);
  for (const TraceSpan& span : trace.spans) ranks.insert(span.rank);
  const auto line = [&](const char* what, int rank, int tid, const std::string& arguments) {
    out.print("{}{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{{}}}}}",
              std::exchange(separator, ",\n"), what, rank + 1, tid, arguments);
  };
  for (const int rank : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    const bool staged = !trace.schedule.empty() && at < trace.stage_of.size();
    line("process_name", rank, 1,
         fmt::format("\"name\":\"rank {}{}\"", rank, staged ? fmt::format(" · stage {}", trace.stage_of[at]) : ""));
    line("process_sort_index", rank, 1, fmt::format("\"sort_index\":{}", rank));
    for (int kind = 0; kind < kSpanKinds; ++kind) {
      line("thread_name", rank, kind + 1,
           fmt::format("\"name\":\"rank {} · {}\"", rank, name_of(static_cast<SpanKind>(kind))));
      line("thread_sort_index", rank, kind + 1, fmt::format("\"sort_index\":{}", kind));
    }
  }
}

}  // namespace

void write_trace(const std::filesystem::path& file, const Trace& trace) {
  PartialFile out(file);
  out.print(
      "{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{{\"format\":\"lockstep trace\",\"version\":1,\"layout\":{},\n"
      "\"schedule\":{},\n\"stage_of\":[{}]}},\n\"traceEvents\":[",
      quoted(trace.layout), quoted(trace.schedule), fmt::join(trace.stage_of, ","));
  const char* separator = "\n";
  name_lines(out, trace, separator);
  double first = trace.spans.empty() ? 0 : trace.spans.front().begin;
  for (const TraceSpan& span : trace.spans) first = std::min(first, span.begin);
  for (const TraceSpan& span : trace.spans) {
    LOCKSTEP_CHECK(span.rank >= 0 && span.rank < kMostTraceRanks && span.step >= 0 && span.position >= -1,
                   "span {} of rank {}, step {}, position {}", span.name, span.rank, span.step, span.position);
    LOCKSTEP_CHECK(span.end >= span.begin && span.end - first <= kLongestTrace,
                   "span {} from {} to {}, the first at {}", span.name, span.begin, span.end, first);
    // Both ends are rounded, not the length: spans that touch still touch.
    const std::int64_t begin = nanoseconds(span.begin - first), end = nanoseconds(span.end - first);
    out.print(
        "{}{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"step\":{}",
        std::exchange(separator, ",\n"), quoted(span.name), name_of(span.kind), span.rank + 1,
        static_cast<int>(span.kind) + 1, microseconds(begin), microseconds(end - begin), span.step);
    if (span.micro >= 0) out.print(",\"micro\":{}", span.micro);
    if (span.position >= 0) out.print(",\"position\":{}", span.position);
    out.print("}}}}");
  }
  out.print("\n]}}\n");
  out.finish();
}

}  // namespace lockstep
