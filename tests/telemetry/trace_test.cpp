// Traces: what is written comes back, and nothing that is read can do harm.
#include "telemetry/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "support/program.h"
#include "telemetry/refused_text.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string file_text(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// Two ranks, of all kinds, with times that are no whole microseconds on a clock that did not begin with them.
Trace small_trace() {
  const double zero = 86400.5;
  return {.layout = "pp=2,micro=2",
          .schedule = "F0 F1 B0 B1\nF0 B0 F1 B1\n",
          .stage_of = {0, 1},
          .spans = {{"forward(0, 0)", SpanKind::compute, 0, 7, 0, zero, zero + 600.4e-9},
                    {"a \"name\"\n\\ é", SpanKind::wait, 1, 7, -1, zero + 600.4e-9, zero + 1200.8e-9},
                    {"send(1)", SpanKind::wait, 1, 8, 3, zero + 1200.8e-9, zero + 1000.5, 5}}};
}

std::string small_text() {
  const TemporaryFolder folder;
  write_trace(folder / "trace.json", small_trace());
  return file_text(folder / "trace.json");
}

std::string refusal(const std::string& text) {
  return refused_text([&] { parse_trace(text, "here"); });
}

TEST(Trace, ComesBackToTheNanosecond) {
  const TemporaryFolder folder;
  const std::string file = folder / "trace.json";
  const Trace before = small_trace();
  write_trace(file, before);
  const Trace after = read_trace(file);
  EXPECT_EQ(after.layout, before.layout);
  EXPECT_EQ(after.schedule, before.schedule);
  EXPECT_EQ(after.stage_of, before.stage_of);
  ASSERT_EQ(after.spans.size(), before.spans.size());
  const double zero = before.spans[0].begin;
  for (std::size_t i = 0; i < before.spans.size(); ++i) {
    const TraceSpan &a = before.spans[i], &b = after.spans[i];
    EXPECT_EQ(std::tie(b.name, b.kind, b.rank, b.step, b.position, b.micro),
              std::tie(a.name, a.kind, a.rank, a.step, a.position, a.micro));
    EXPECT_NEAR(b.begin, a.begin - zero, 0.51e-9);  // the clock's own rounding included
    EXPECT_NEAR(b.end, a.end - zero, 0.51e-9);
  }
  EXPECT_EQ(after.spans[0].end, after.spans[1].begin);  // what touched touches
  EXPECT_EQ(after.spans[1].end, after.spans[2].begin);
  EXPECT_EQ(after.steps(), 2u);
  EXPECT_FALSE(std::filesystem::exists(file + ".partial"));
}

TEST(Trace, ThatWasReadIsWrittenAsItWas) {
  const TemporaryFolder folder;
  write_trace(folder / "again.json", parse_trace(small_text(), "here"));
  EXPECT_EQ(file_text(folder / "again.json"), small_text());
}

TEST(Trace, LastsForWeeksAndKeepsItsNanoseconds) {
  const TemporaryFolder folder;
  Trace trace = small_trace();
  trace.spans = {{"a", SpanKind::compute, 0, 0, 0, 0, 1e-9},
                 {"b", SpanKind::compute, 0, 0, 1, kLongestTrace - 1, kLongestTrace - 1 + 1e-9}};
  write_trace(folder / "long.json", trace);
  EXPECT_NEAR(read_trace(folder / "long.json").spans[1].begin, kLongestTrace - 1, 1e-9);
  trace.spans[1].end = kLongestTrace * 1.1;
  EXPECT_THROW(write_trace(folder / "longer.json", trace), ProgramError);
  EXPECT_FALSE(std::filesystem::exists(folder / "longer.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "longer.json.partial"));
}

TEST(Trace, OfNothingIsATrace) {
  const TemporaryFolder folder;
  write_trace(folder / "empty.json", {});
  const Trace trace = read_trace(folder / "empty.json");
  EXPECT_TRUE(trace.spans.empty() && trace.stage_of.empty() && trace.schedule.empty());
}

// As Chrome's viewer and Perfetto want it: every event with the fields of its phase, ranks and kinds named.
TEST(Trace, IsInTheFormOfTheViewers) {
  const json file = json::parse(small_text());
  EXPECT_EQ(file["displayTimeUnit"], "ms");
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  int spans = 0;
  for (const json& event : file["traceEvents"]) {
    EXPECT_GE(event["pid"], 1);  // 0 is the idle task to Perfetto
    EXPECT_GE(event["tid"], 1);
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
      if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    EXPECT_TRUE(event["ts"].is_number() && event["dur"].is_number() && event["name"].is_string());
    EXPECT_TRUE(threads.contains({event["pid"], event["tid"]}));
    ++spans;
  }
  EXPECT_EQ(spans, 3);
  EXPECT_EQ(processes[2], "rank 1 · stage 1");
  EXPECT_EQ((threads[{1, 1}]), "rank 0 · compute");
  EXPECT_EQ((threads[{2, 2}]), "rank 1 · wait");
}

TEST(Trace, PassesOverWhatOtherProgramsAdded) {
  json file = json::parse(small_text());
  const Trace before = parse_trace(file.dump(), "here");
  for (const char* added :
       {R"({"ph":"B","name":"x","cat":"compute","pid":"a","ts":[1]})", R"({"ph":"X","cat":"gpu","ts":-1e300})",
        R"({"ph":"X","cat":["compute"],"pid":{"ph":"X","cat":"compute"}})", R"({"cat":"compute"})", "[[{}]]", "7",
        "null", R"({"ph":"C","args":{"step":"none","args":{"position":[{}]}}})", "{}"})
    file["traceEvents"].push_back(json::parse(added));
  file["stackFrames"] = {{"1", {{"traceEvents", 3}}}};
  file["otherData"]["machine"] = {{"schedule", 1}, {"stage_of", {1, 2, 3}}};
  const Trace after = parse_trace(file.dump(), "here");
  EXPECT_EQ(after.spans.size(), before.spans.size());
  EXPECT_EQ(after.schedule, before.schedule);
  EXPECT_EQ(after.stage_of, before.stage_of);
}

TEST(Trace, FieldsMayStandInAnyOrder) {
  const json sorted = json::parse(small_text());  // by name: otherData before traceEvents, args before ph
  EXPECT_EQ(parse_trace(sorted.dump(), "here").spans.size(), 3u);
  EXPECT_EQ(parse_trace("{\"traceEvents\":" + sorted["traceEvents"].dump() +
                            ",\"otherData\":" + sorted["otherData"].dump() + "}",
                        "here")
                .spans.size(),
            3u);
}

TEST(HostileTrace, CutAnywhereIsRefused) {
  const std::string text = small_text();
  const std::size_t whole = text.find_last_of('}') + 1;
  for (std::size_t size = 0; size < whole; ++size) EXPECT_NE(refusal(text.substr(0, size)), "") << size;
  EXPECT_EQ(refusal(text.substr(0, whole)), "");
}

TEST(HostileTrace, WithAnyByteChangedIsReadOrRefused) {
  const std::string text = small_text();
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const char c : {'\0', '"', '{', '}', '[', ',', '9', '-', 'e', '\\', '\xff'}) {
      std::string other = text;
      other[at] = c;
      refusal(other);
    }
}

// Every value of the file replaced by one of every other type and by numbers out of range: what the reader needs is
// refused, and nothing crashes.
TEST(HostileTrace, WithAnyValueOfAnotherTypeIsReadOrRefused) {
  const json file = json::parse(small_text());
  const json values[] = {nullptr,
                         true,
                         -1,
                         0.5,
                         1e300,
                         18446744073709551615u,
                         "text",
                         json::array(),
                         json::object(),
                         json::array({json::array({1})}),
                         {{"ph", "X"}}};
  const json flat = file.flatten();
  int refused = 0, all = 0;
  std::set<json::json_pointer> places;
  for (const auto& [path, unused] : flat.items())
    for (json::json_pointer place(path); !place.empty(); place = place.parent_pointer()) places.insert(place);
  for (const json::json_pointer& place : places)
    for (const json& value : values) {
      json other = file;
      other[place] = value;
      ++all;
      refused += !refusal(other.dump()).empty();
    }
  EXPECT_GT(refused, all / 6);  // most values are the viewers', and nobody's here
}

TEST(HostileTrace, IsRefusedForWhatIsWrongWithIt) {
  const json file = json::parse(small_text());
  const std::size_t last = file["traceEvents"].size() - 1;
  const auto changed = [&](const std::string& path, const json& value) {
    json other = file;
    other[json::json_pointer(path)] = value;
    return refusal(other.dump());
  };
  const std::string event = "/traceEvents/" + std::to_string(last);
  EXPECT_THAT(changed(event + "/pid", 3), HasSubstr("an event of rank 2 among 2 ranks"));
  EXPECT_THAT(changed(event + "/pid", 0), HasSubstr("no pid of a rank"));
  EXPECT_THAT(changed(event + "/pid", 1.5), HasSubstr("no pid of a rank"));
  EXPECT_THAT(changed(event + "/tid", 1), HasSubstr("not have the tid of its cat"));
  EXPECT_THAT(changed(event + "/ts", "1"), HasSubstr("no ts"));
  EXPECT_THAT(changed(event + "/ts", 1e14), HasSubstr("no ts"));
  EXPECT_THAT(changed(event + "/dur", -0.001), HasSubstr("no dur"));
  EXPECT_THAT(changed(event + "/args", 3), HasSubstr("no step of training"));
  EXPECT_THAT(changed(event + "/args/step", -1), HasSubstr("no step of training"));
  EXPECT_THAT(changed(event + "/args/position", -1), HasSubstr("a bad position"));
  EXPECT_THAT(changed(event + "/args/position", 1e18), HasSubstr("a bad position"));
  EXPECT_THAT(changed(event + "/name", std::string(10000, 'a')), HasSubstr("too long"));
  EXPECT_THAT(changed("/otherData/stage_of/0", 1e9), HasSubstr("stage_of"));
  EXPECT_THAT(changed("/otherData/stage_of", "0,1"), HasSubstr("stage_of"));
  EXPECT_THAT(changed("/otherData/format", "other"), HasSubstr("not a trace of lockstep"));
  EXPECT_THAT(changed("/otherData/version", 2), HasSubstr("another version"));
  EXPECT_THAT(changed("/otherData/schedule", 5), HasSubstr("schedule"));
  EXPECT_THAT(changed("/traceEvents", json::object()), HasSubstr("not a list"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a trace of lockstep"));
  EXPECT_THAT(refusal("3"), HasSubstr("not a trace of lockstep"));
  EXPECT_THAT(refusal(""), HasSubstr("byte"));
  EXPECT_THAT(refusal(file.dump() + std::string(1, '\0')), HasSubstr("zero byte"));
  EXPECT_THAT(refusal(file.dump() + "{}"), HasSubstr("byte"));
  EXPECT_THAT(refusal(R"({"traceEvents":[],"traceEvents":[]})"), HasSubstr("twice"));
  EXPECT_THAT(refusal(std::string(2'000'000, '[')), HasSubstr("not a trace of lockstep"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(2'000'000, '[')), HasSubstr("byte"));
  std::string twice = file.dump();
  twice.insert(twice.find("\"ts\":"), "\"ts\":1,");
  EXPECT_THAT(refusal(twice), HasSubstr("no ts"));
}

TEST(HostileTrace, ThatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "absent", folder.path().string(), std::string("/dev/zero")})
    EXPECT_THROW(read_trace(path), UserError) << path;
  EXPECT_THROW(write_trace(folder / "absent/trace.json", {}), EnvironmentError);
  std::ofstream(folder / "empty");
  EXPECT_THROW(read_trace(folder / "empty"), UserError);
  std::filesystem::resize_file(folder / "empty", kMostTraceBytes + 1);  // a hole: no disk is used
  EXPECT_THROW(read_trace(folder / "empty"), UserError);
}

}  // namespace
}  // namespace lockstep::tests
