#include "support/trace_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::tests {

namespace {

using nlohmann::json;
using LineKey = std::pair<std::int64_t, std::int64_t>;  // pid, tid

struct CheckedSlice {
  std::int64_t begin = 0, end = 0;  // nanoseconds
  std::string name, category;
  json args;
  int in = 0, out = 0;  // arrows
};

struct FlowEnd {
  LineKey line;
  std::int64_t time = 0;
  std::string category, name;
};

class TraceChecker {
 public:
  TraceFacts facts;

  void check(const json& file) {
    if (!file.is_object() || !file.contains("traceEvents") || !file["traceEvents"].is_array())
      return fault("the file has no list of traceEvents");
    if (const json& other = file["otherData"]; other.is_object() && other.contains("clock_error"))
      facts.clock_error = other["clock_error"];
    for (const json& event : file["traceEvents"]) event_of(event);
    for (auto& [line, slices] : lines_) check_line(line, slices);
    for (const auto& [id, end] : ends_)
      if (!starts_.contains(id)) fault(fmt::format("flow {} ends and does not begin", id));
    for (const auto& [id, start] : starts_) check_arrow(id, start);
    check_messages();
  }

 private:
  void fault(const std::string& what) {
    if (facts.faults.size() < 20) facts.faults.push_back(what);
  }
  static bool finite(const json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

  void event_of(const json& event) {
    if (!event.is_object() || !event.value("ph", json()).is_string()) return fault("an event has no ph");
    const std::string ph = event["ph"];
    const std::string what = event.dump().substr(0, 200);
    for (const char* key : {"pid", "tid"})
      if (!event.value(key, json()).is_number_integer() || event[key].get<std::int64_t>() < 1)
        return fault(fmt::format("no {} from 1 on: {}", key, what));
    if (!event.value("name", json()).is_string() || event["name"].get<std::string>().empty())
      return fault("no name: " + what);
    const LineKey line{event["pid"], event["tid"]};
    if (ph == "M") return metadata(event, line, what);
    if (!finite(event.value("ts", json())) || event["ts"].get<double>() < 0) return fault("no ts from 0 on: " + what);
    const std::int64_t time = std::llround(event["ts"].get<double>() * 1e3);
    if (ph == "X") {
      if (!finite(event.value("dur", json())) || event["dur"].get<double>() < 0) return fault("no dur: " + what);
      ++facts.slices;
      lines_[line].push_back({time, time + std::llround(event["dur"].get<double>() * 1e3), event["name"], event["cat"],
                              event.value("args", json::object())});
    } else if (ph == "s" || ph == "f") {
      if (!event.value("id", json()).is_number_integer()) return fault("a flow without an id: " + what);
      if (ph == "f" && event.value("bp", "") != "e")
        return fault("a flow's end that names no enclosing slice: " + what);
      auto& of = ph == "s" ? starts_ : ends_;
      if (!of.emplace(event["id"].get<std::int64_t>(), FlowEnd{line, time, event["cat"], event["name"]}).second)
        fault("a flow's id twice: " + what);
    } else if (ph == "C") {
      ++facts.counters;
      const json args = event.value("args", json());
      if (!args.is_object() || args.empty()) return fault("a counter of nothing: " + what);
      for (const auto& [tag, value] : args.items())
        if (!finite(value) || value.get<double>() < 0) fault("a counter that is no number from 0 on: " + what);
      if (counted_.contains(line.first) && counted_[line.first] > time) fault("counters out of order: " + what);
      counted_[line.first] = time;
      pids_.insert(line.first);
    } else {
      fault("a ph that nothing here writes: " + what);
    }
  }

  void metadata(const json& event, const LineKey& line, const std::string& what) {
    const json args = event.value("args", json());
    const std::string name = event["name"];
    if (name.ends_with("_name") ? !args.value("name", json()).is_string()
                                : !args.value("sort_index", json()).is_number_integer())
      return fault("metadata of nothing: " + what);
    if (name == "process_name") processes_.insert(line.first);
    if (name == "thread_name" && !threads_.emplace(line, args["name"]).second) fault("a line named twice: " + what);
  }

  // Slices of one line: none overlaps another.
  void check_line(const LineKey& line, std::vector<CheckedSlice>& slices) {
    if (!processes_.contains(line.first)) fault(fmt::format("process {} has no name", line.first));
    if (!threads_.contains(line)) fault(fmt::format("line {} of process {} has no name", line.second, line.first));
    std::ranges::stable_sort(slices, {}, &CheckedSlice::begin);
    for (std::size_t i = 1; i < slices.size(); ++i)
      if (slices[i].begin < slices[i - 1].end)
        fault(fmt::format("'{}' and '{}' of process {} overlap", slices[i - 1].name, slices[i].name, line.first));
  }

  CheckedSlice* around(const FlowEnd& end) {
    for (CheckedSlice& slice : lines_[end.line])
      if (slice.begin <= end.time && end.time < slice.end) return &slice;
    return nullptr;
  }

  void check_arrow(std::int64_t id, const FlowEnd& start) {
    const auto found = ends_.find(id);
    if (found == ends_.end()) return fault(fmt::format("flow {} begins and does not end", id));
    const FlowEnd& end = found->second;
    CheckedSlice *from = around(start), *to = around(end);
    if (!from || !to) return fault(fmt::format("flow {} begins or ends in no slice", id));
    if (start.category != end.category || start.name != end.name) fault(fmt::format("flow {} has two names", id));
    if (start.line.first == end.line.first) fault(fmt::format("flow {} is within a rank", id));
    ++from->out, ++to->in;
    const std::int64_t later = end.time - start.time;
    facts.earliest_receipt = facts.arrows++ == 0 ? later : std::min(facts.earliest_receipt, later);
    if (static_cast<double>(later) < -2e9 * std::max(0.0, facts.clock_error))
      fault(fmt::format("'{}' of process {} was received {} ns before process {} sent it", to->name, end.line.first,
                        -later, start.line.first));
    if (to->name == "recv" && (!from->name.starts_with("send") || from->args["bytes"] != to->args["bytes"]))
      fault(fmt::format("a receive of process {} from a {} of another size", end.line.first, from->name));
    if (to->name != "recv" && !from->name.starts_with(to->name))
      fault(fmt::format("a {} that needed a {}", to->name, from->name));
    if (from->args["group"] != to->args["group"]) fault(fmt::format("flow {} joins two groups", id));
  }

  void check_messages() {
    const std::set<std::string> axes{"dp", "pp", "cp", "tp"};
    for (const auto& [line, slices] : lines_)
      for (const CheckedSlice& slice : slices) {
        if (!axes.contains(slice.category)) continue;
        ++facts.messages;
        const std::string what = fmt::format("a {} of process {} in step {}", slice.name, line.first,
                                             slice.args.value("step", json()).dump());
        if (slice.name == "recv" && slice.in != 1) fault(fmt::format("{} has {} arrows to it", what, slice.in));
        if (slice.name == "send" && slice.out != 1) fault(fmt::format("{} has {} arrows from it", what, slice.out));
        if (slice.in > 1) fault(what + " needed two others");
        if ((slice.name == "all_reduce" || slice.name == "all_gather") && slice.in + slice.out == 0)
          fault(what + " met nobody");
      }
  }

  std::map<LineKey, std::vector<CheckedSlice>> lines_;
  std::map<LineKey, std::string> threads_;
  std::set<std::int64_t> processes_, pids_;
  std::map<std::int64_t, std::int64_t> counted_;
  std::map<std::int64_t, FlowEnd> starts_, ends_;
};

}  // namespace

TraceFacts facts_of_trace(const std::string& text) {
  TraceChecker checker;
  const json file = json::parse(text, nullptr, false);
  if (file.is_discarded())
    checker.facts.faults.push_back("is not JSON");
  else
    checker.check(file);
  return checker.facts;
}

}  // namespace lockstep::tests
