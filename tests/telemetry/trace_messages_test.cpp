// Messages, arrows and memory in trace files, held to the trace-event format by an independent checker, which finds
// what is wrong with files that are not.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "support/program.h"
#include "support/trace_check.h"
#include "telemetry/trace.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;

// Two ranks: a send and its receive, and two all-reduces at once.
Trace trace_with_messages() {
  Trace trace{.layout = "dp=2",
              .schedule = "",
              .stage_of = {0, 0},
              .spans = {{"forward", SpanKind::compute, 0, 3, 0, 10, 11},
                        {"backward", SpanKind::compute, 0, 3, 1, 11, 11.5},
                        {"forward", SpanKind::compute, 1, 3, 0, 10, 12}}};
  const auto add = [&](const char* name, int axis, int rank, double begin, double end) {
    trace.messages.push_back({.name = name,
                              .axis = axis,
                              .rank = rank,
                              .step = 3,
                              .begin = begin,
                              .end = end,
                              .bytes = 400,
                              .group = axis == 1 ? "pp" : "dp"});
  };
  add("send", 1, 0, 10.5, 10.6);
  add("recv", 1, 1, 10.1, 10.7);
  add("all_reduce", 0, 0, 11, 13);
  add("all_reduce", 0, 1, 12, 13);
  add("all_reduce", 0, 0, 11.5, 14);
  add("all_reduce", 0, 1, 12.5, 12.5);
  trace.arrows = {{0, 1}, {3, 2}, {5, 4}};
  trace.memory = {
      {0, 10, {{"parameter", 100}, {"activation", 7}}}, {1, 10, {{"parameter", 100}}}, {0, 11, {{"parameter", 0}}}};
  trace.clock_error = 1e-6;
  return trace;
}

std::string text_with_messages(const Trace& trace = trace_with_messages()) {
  const TemporaryFolder folder;
  write_trace(folder / "trace.json", trace);
  std::ostringstream text;
  text << std::ifstream(folder / "trace.json").rdbuf();
  return text.str();
}

TEST(TraceMessages, AreInTheTraceEventFormat) {
  const TraceFacts facts = facts_of_trace(text_with_messages());
  EXPECT_EQ(facts.faults, std::vector<std::string>{});
  EXPECT_EQ(facts.slices, 9);
  EXPECT_EQ(facts.messages, 6);
  EXPECT_EQ(facts.arrows, 3);
  EXPECT_EQ(facts.counters, 3);
  EXPECT_EQ(facts.clock_error, 1e-6);
}

TEST(TraceMessages, ThatOverlapHaveLinesOfTheirOwn) {
  std::set<std::string> lines;
  const json file = json::parse(text_with_messages());
  for (const json& event : file["traceEvents"])
    if (event["name"] == "thread_name") lines.insert(event["args"]["name"]);
  EXPECT_EQ(lines,
            (std::set<std::string>{"rank 0 · compute", "rank 0 · dp messages", "rank 0 · dp messages 2",
                                   "rank 0 · pp messages", "rank 0 · wait", "rank 1 · compute", "rank 1 · dp messages",
                                   "rank 1 · dp messages 2", "rank 1 · pp messages", "rank 1 · wait"}));
}

TEST(TraceMessages, AreIgnoredByTheReaderOfSchedules) {
  const Trace read = parse_trace(text_with_messages(), "here");
  EXPECT_EQ(read.spans.size(), 3u);
  EXPECT_TRUE(read.messages.empty());
}

TEST(TraceMessages, OfNoRankOrTimeAreRefused) {
  const auto refuses = [](const auto& change) {
    Trace trace = trace_with_messages();
    change(trace);
    EXPECT_THROW(text_with_messages(trace), ProgramError);
  };
  refuses([](Trace& t) { t.messages[0].rank = -1; });
  refuses([](Trace& t) { t.messages[0].axis = 4; });
  refuses([](Trace& t) { t.messages[0].end = 9; });
  refuses([](Trace& t) { t.messages[0].end = 1e9; });
  refuses([](Trace& t) { t.arrows[0].to = 6; });
  refuses([](Trace& t) { t.memory[0].rank = 1 << 21; });
}

// The checker would find it.
TEST(TraceCheck, FindsWhatIsWrong) {
  const json good = json::parse(text_with_messages());
  const auto faults = [&](const auto& change) {
    json file = good;
    for (json& event : file["traceEvents"]) change(event);
    std::erase_if(file["traceEvents"].get_ref<json::array_t&>(), [](const json& event) { return event.is_null(); });
    return facts_of_trace(file.dump()).faults;
  };
  EXPECT_TRUE(faults([](json&) {}).empty());
  const auto of = [](const json& event, const char* ph) { return event.is_object() && event["ph"] == ph; };
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "f") && e["id"] == 2) e = nullptr;
               }).empty())
      << "an arrow without end";
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "s") && e["id"] == 1) e["id"] = 2;
               }).empty())
      << "an id twice";
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "f")) e.erase("bp");
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "f") && e["id"] == 1) e["ts"] = 0;
               }).empty())
      << "in no slice";
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "X")) e["ts"] = -1;
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "X")) e["dur"] = nullptr;
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "X")) e["dur"] = 3e6;
               }).empty())
      << "slices that overlap";
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "C")) e["args"]["parameter"] = "many";
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "M") && e["name"] == "thread_name" && e["tid"] == 4) e = nullptr;
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "M") && e["name"] == "process_name") e = nullptr;
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "X") && e["name"] == "send") e["args"]["bytes"] = 1;
               }).empty());
  EXPECT_FALSE(faults([&](json& e) {
                 if (of(e, "s") || of(e, "f")) e = nullptr;
               }).empty())
      << "a receive of nothing";
  EXPECT_FALSE(faults([&](json& e) { e["pid"] = 0; }).empty());
  EXPECT_FALSE(facts_of_trace("[]").faults.empty());
  EXPECT_FALSE(facts_of_trace("{").faults.empty());
}

// A receipt before its send is a fault beyond twice the stated error, and none within it.
TEST(TraceCheck, KnowsWhatWasReceivedBeforeItWasSent) {
  const auto faults = [](double early) {
    Trace trace = trace_with_messages();
    trace.messages[1].end = trace.messages[0].begin - early;
    return facts_of_trace(text_with_messages(trace)).faults;
  };
  EXPECT_TRUE(faults(1e-6).empty());
  ASSERT_EQ(faults(3e-6).size(), 1u);
  EXPECT_NE(faults(3e-6)[0].find("before process 1 sent it"), std::string::npos) << faults(3e-6)[0];
}

}  // namespace
}  // namespace lockstep::tests
