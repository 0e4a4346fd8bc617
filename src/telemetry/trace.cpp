// Writes traces line by line, so that memory does not grow with them.
#include "telemetry/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
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

// Times of the file: nanoseconds from the first one.
class FileTimes {
 public:
  explicit FileTimes(const Trace& trace) {
    bool any = false;
    const auto add = [&](double time) { first_ = std::exchange(any, true) ? std::min(first_, time) : time; };
    for (const TraceSpan& span : trace.spans) add(span.begin);
    for (const TraceMessage& message : trace.messages) add(message.begin);
    for (const TraceMemory& memory : trace.memory) add(memory.time);
  }
  std::int64_t of(double seconds) const { return nanoseconds(seconds - first_); }
  bool has(double seconds) const { return seconds >= first_ && seconds - first_ <= kLongestTrace; }

 private:
  double first_ = 0;
};

// Messages of one rank and axis on lines where none overlaps another: the line of each.
struct MessageLines {
  explicit MessageLines(const Trace& trace, const FileTimes& times) : of(trace.messages.size()) {
    std::vector<std::size_t> order(trace.messages.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return trace.messages[i].begin; });
    std::map<std::pair<int, int>, std::vector<std::int64_t>> ends;  // of the last message of each line
    for (const std::size_t i : order) {
      const TraceMessage& message = trace.messages[i];
      std::vector<std::int64_t>& lines = ends[{message.rank, message.axis}];
      std::size_t line = 0;
      while (line < lines.size() && lines[line] > times.of(message.begin)) ++line;
      if (line == lines.size()) lines.push_back(0);
      lines[line] = end_of(message, times);
      of[i] = static_cast<int>(line);
    }
    for (const auto& [key, lines] : ends) count[key] = static_cast<int>(lines.size());
  }
  // What took no time is shown as a nanosecond, so that an arrow finds it.
  static std::int64_t end_of(const TraceMessage& message, const FileTimes& times) {
    return std::max(times.of(message.end), times.of(message.begin) + 1);
  }
  static int tid(int axis, int line) { return kSpanKinds + 1 + axis + kTraceAxes * line; }

  std::vector<int> of;
  std::map<std::pair<int, int>, int> count;  // by rank and axis
};

// Names for the viewer. Sorted by rank and kind: it would otherwise sort by name, 10 before 2.
void name_lines(PartialFile& out, const Trace& trace, const MessageLines& lines, const char*& separator) {
  std::set<int> ranks;
  for (int r = 0; r < static_cast<int>(trace.stage_of.size()); ++r) ranks.insert(r);
  for (const TraceSpan& span : trace.spans) ranks.insert(span.rank);
  for (const TraceMessage& message : trace.messages) ranks.insert(message.rank);
  for (const TraceMemory& memory : trace.memory) ranks.insert(memory.rank);
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
    for (int axis = 0; axis < kTraceAxes; ++axis) {
      const auto found = lines.count.find({rank, axis});
      for (int at_once = 0; found != lines.count.end() && at_once < found->second; ++at_once) {
        const int tid = MessageLines::tid(axis, at_once);
        line("thread_name", rank, tid,
             fmt::format("\"name\":\"rank {} · {} messages{}\"", rank, kTraceAxisNames[axis],
                         at_once == 0 ? "" : fmt::format(" {}", at_once + 1)));
        line("thread_sort_index", rank, tid, fmt::format("\"sort_index\":{}", kSpanKinds + 1000 * axis + at_once));
      }
    }
  }
}

void write_messages(PartialFile& out, const Trace& trace, const FileTimes& times, const MessageLines& lines,
                    const char*& separator) {
  for (std::size_t i = 0; i < trace.messages.size(); ++i) {
    const TraceMessage& m = trace.messages[i];
    LOCKSTEP_CHECK(m.rank >= 0 && m.rank < kMostTraceRanks && m.axis >= 0 && m.axis < kTraceAxes && m.step >= 0,
                   "message {} of rank {}, axis {}, step {}", m.name, m.rank, m.axis, m.step);
    LOCKSTEP_CHECK(m.end >= m.begin && times.has(m.end), "message {} from {} to {}", m.name, m.begin, m.end);
    const std::int64_t begin = times.of(m.begin), end = MessageLines::end_of(m, times);
    out.print(
        "{}{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"step\":{},"
        "\"bytes\":{},\"group\":{}}}}}",
        std::exchange(separator, ",\n"), quoted(m.name), kTraceAxisNames[m.axis], m.rank + 1,
        MessageLines::tid(m.axis, lines.of[i]), microseconds(begin), microseconds(end - begin), m.step, m.bytes,
        quoted(m.group));
  }
  const auto flow = [&](const char* phase, const char* more, std::size_t id, std::size_t message, std::int64_t time) {
    const TraceMessage& m = trace.messages[message];
    out.print("{}{{\"ph\":\"{}\",{}\"name\":\"message\",\"cat\":\"{}\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{}}}",
              std::exchange(separator, ",\n"), phase, more, kTraceAxisNames[m.axis], id + 1, m.rank + 1,
              MessageLines::tid(m.axis, lines.of[message]), microseconds(time));
  };
  for (std::size_t id = 0; id < trace.arrows.size(); ++id) {
    const auto [from, to] = trace.arrows[id];
    LOCKSTEP_CHECK(from < trace.messages.size() && to < trace.messages.size(), "an arrow of no message");
    flow("s", "", id, from, times.of(trace.messages[from].begin));
    // Inside the span that it ends in: a viewer takes the end itself for the next one.
    flow("f", "\"bp\":\"e\",", id, to, MessageLines::end_of(trace.messages[to], times) - 1);
  }
}

void write_memory(PartialFile& out, const Trace& trace, const FileTimes& times, const char*& separator) {
  for (const TraceMemory& memory : trace.memory) {
    LOCKSTEP_CHECK(memory.rank >= 0 && memory.rank < kMostTraceRanks && times.has(memory.time),
                   "memory of rank {} at {}", memory.rank, memory.time);
    std::string bytes;
    for (const auto& [tag, held] : memory.bytes)
      bytes += fmt::format("{}{}:{}", bytes.empty() ? "" : ",", quoted(tag), held);
    out.print("{}{{\"ph\":\"C\",\"name\":\"memory\",\"pid\":{},\"tid\":1,\"ts\":{},\"args\":{{{}}}}}",
              std::exchange(separator, ",\n"), memory.rank + 1, microseconds(times.of(memory.time)), bytes);
  }
}

}  // namespace

void write_trace(const std::filesystem::path& file, const Trace& trace) {
  PartialFile out(file);
  out.print(
      "{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{{\"format\":\"lockstep trace\",\"version\":1,\"layout\":{},\n"
      "\"schedule\":{},\n\"stage_of\":[{}]{}}},\n\"traceEvents\":[",
      quoted(trace.layout), quoted(trace.schedule), fmt::join(trace.stage_of, ","),
      trace.clock_error ? fmt::format(",\n\"clock_error\":{}", *trace.clock_error) : "");
  const char* separator = "\n";
  const FileTimes times(trace);
  const MessageLines lines(trace, times);
  name_lines(out, trace, lines, separator);
  for (const TraceSpan& span : trace.spans) {
    LOCKSTEP_CHECK(span.rank >= 0 && span.rank < kMostTraceRanks && span.step >= 0 && span.position >= -1,
                   "span {} of rank {}, step {}, position {}", span.name, span.rank, span.step, span.position);
    LOCKSTEP_CHECK(span.end >= span.begin && times.has(span.end), "span {} from {} to {}", span.name, span.begin,
                   span.end);
    // Both ends are rounded, not the length: spans that touch still touch.
    const std::int64_t begin = times.of(span.begin), end = times.of(span.end);
    out.print(
        "{}{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"step\":{}",
        std::exchange(separator, ",\n"), quoted(span.name), name_of(span.kind), span.rank + 1,
        static_cast<int>(span.kind) + 1, microseconds(begin), microseconds(end - begin), span.step);
    if (span.micro >= 0) out.print(",\"micro\":{}", span.micro);
    if (span.position >= 0) out.print(",\"position\":{}", span.position);
    out.print("}}}}");
  }
  write_messages(out, trace, times, lines, separator);
  write_memory(out, trace, times, separator);
  out.print("\n]}}\n");
  out.finish();
}

}  // namespace lockstep
