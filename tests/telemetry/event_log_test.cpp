// events.jsonl: lines that say when, of whom and what; steps are sampled; a resumed run keeps what is past.
#include "telemetry/event_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/small_disk.h"
#include "telemetry/run_event.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;

std::vector<json> lines_of_events(const std::string& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

LoggedEvent step_of(int rank, std::int64_t step) {
  return {.time = 1.7e9 + static_cast<double>(step), .error = 1e-6, .rank = rank, .step = step, .seconds = 0.5};
}

TEST(EventLog, WritesOneObjectPerEvent) {
  const TemporaryFolder folder;
  EventLog log(folder / "events.jsonl", {});
  log.write({.time = 1700000000.25, .rank = 3, .kind = EventKind::fault, .step = 7, .text = "a \"disk\"\n\xff"});
  log.write(step_of(1, 8));
  log.write({.time = 1, .error = std::nan(""), .kind = EventKind::save});
  const std::vector<json> lines = lines_of_events(folder / "events.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], json::parse(R"({"time": 1700000000.25, "error": null, "rank": 3, "kind": "fault", "step": 7,
                                      "seconds": null, "text": "a \"disk\"\n�"})"));
  EXPECT_EQ(lines[1], json::parse(R"({"time": 1700000008.0, "error": 1e-6, "rank": 1, "kind": "step", "step": 8,
                                      "seconds": 0.5, "text": ""})"));
  EXPECT_TRUE(lines[2]["error"].is_null());
  const char* names[] = {"start",   "step",     "save", "saved",    "evaluation", "fault",    "stall", "clock", "end",
                         "restart", "decision", "slow", "slow_end", "rewind",     "relayout", "leave", "join"};
  static_assert(std::size(names) == kEventKinds);
  for (int kind = 0; kind < kEventKinds; ++kind) EXPECT_EQ(name_of(static_cast<EventKind>(kind)), names[kind]);
  const char* decisions[] = {"same", "spare", "shrink", "grow", "wait", "end", "go_on"};
  static_assert(std::size(decisions) == kDecisions);
  for (int d = 0; d < kDecisions; ++d) EXPECT_EQ(name_of(static_cast<Decision>(d)), decisions[d]);
}

TEST(EventLog, WritesWhatIsKnownAndReadsItBack) {
  const LoggedEvent decision{.time = 5,
                             .rank = kOfTheAgent,
                             .kind = EventKind::decision,
                             .step = 12,
                             .text = "the same ranks start again",
                             .decision = Decision::same,
                             .epoch = 3,
                             .ranks = 8};
  EXPECT_EQ(json::parse(to_json_line(decision)),
            json::parse(R"({"time": 5.0, "error": null, "rank": null, "kind": "decision", "step": 12, "seconds": null,
                            "text": "the same ranks start again", "decision": "same", "epoch": 3, "ranks": 8})"));
  const auto agents = read_run_event(to_json_line(decision));
  ASSERT_TRUE(agents);
  EXPECT_EQ(agents->rank, -1);
  EXPECT_EQ(agents->decision, "same");
  EXPECT_EQ(agents->epoch, 3);
  EXPECT_EQ(agents->culprit, -1);
  EXPECT_FALSE(agents->lost);
  LoggedEvent start{.time = 7.5, .kind = EventKind::start, .step = 10, .seconds = 0.25};
  start.lost = LostSteps{.steps = 2, .from = 1.5, .until = 3};
  const auto started = read_run_event(to_json_line(start));
  ASSERT_TRUE(started && started->lost);
  EXPECT_EQ(started->lost->steps, 2);
  EXPECT_EQ(started->lost->from, 1.5);
  EXPECT_EQ(started->lost->until, 3);
  EXPECT_EQ(started->seconds, 0.25);
  const auto fault = read_run_event(to_json_line({.rank = 4, .kind = EventKind::fault, .text = "x", .culprit = 2}));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->culprit, 2);
  EXPECT_EQ(fault->rank, 4);
  for (const char* bad : {"", "{", "[]", "7", R"({"kind": 7})", R"({"step": 3})", R"({"kind": "fault")"})
    EXPECT_FALSE(read_run_event(bad)) << bad;
  const auto odd = read_run_event(R"({"kind": "fault", "rank": "x", "culprit": -3, "lost": {"from": 1}, "time": "y"})");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->culprit, -1);
  EXPECT_FALSE(odd->lost);
  EXPECT_FALSE(known(odd->time));
}

// A try that has died before its first checkpoint is part of the run's history.
TEST(EventLog, OfARunThatResumesWithoutACheckpointKeepsItsFaults) {
  const TemporaryFolder folder;
  const std::string path = folder / "events.jsonl";
  {
    EventLog log(path, {});
    log.write({.kind = EventKind::start});
    log.write(step_of(0, 1));
    log.write({.kind = EventKind::fault, .step = 1});
  }
  { EventLog log(path, {.resumes = true}); }
  std::vector<std::string> kept;
  for (const json& line : lines_of_events(path)) kept.push_back(line["kind"]);
  EXPECT_EQ(kept, (std::vector<std::string>{"start", "fault"}));
}

TEST(EventLog, SamplesStepsOfAllRanksAndNothingElse) {
  const TemporaryFolder folder;
  {
    EventLog log(folder / "events.jsonl", {.every = 3});
    for (std::int64_t step = 1; step <= 10; ++step) {
      for (int rank = 0; rank < 2; ++rank) log.write(step_of(rank, step));
      log.write({.kind = EventKind::stall, .step = step});
    }
  }
  std::vector<std::pair<int, std::int64_t>> steps;
  std::int64_t stalls = 0;
  for (const json& line : lines_of_events(folder / "events.jsonl")) {
    if (line["kind"] == "step") steps.emplace_back(line["rank"], line["step"]);
    stalls += line["kind"] == "stall";
  }
  EXPECT_EQ(stalls, 10);
  EXPECT_EQ(steps, (std::vector<std::pair<int, std::int64_t>>{
                       {0, 1}, {1, 1}, {0, 3}, {1, 3}, {0, 6}, {1, 6}, {0, 9}, {1, 9}}));
  EventLog none(folder / "none.jsonl", {.every = 0});
  none.write(step_of(0, 1));
  none.write({.kind = EventKind::end, .step = 1});
  EXPECT_EQ(lines_of_events(folder / "none.jsonl").size(), 1u);
}

TEST(EventLog, GrowsWithTheLogarithmOfTheSteps) {
  const TemporaryFolder folder;
  EventLog log(folder / "events.jsonl", {});
  const std::int64_t doubling = StepSampling::kLinesBeforeDoubling;
  for (std::int64_t step = 1; step <= 8 * doubling; ++step) log.write(step_of(0, step));
  const auto lines = static_cast<std::int64_t>(lines_of_events(folder / "events.jsonl").size());
  EXPECT_GE(lines, 3 * doubling);
  EXPECT_LE(lines, 4 * doubling);
}

TEST(EventLog, OfARunThatResumesKeepsWhatDoesNotHappenAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "events.jsonl";
  {
    EventLog log(path, {});
    log.write({.kind = EventKind::start});
    for (std::int64_t step = 1; step <= 9; ++step) log.write(step_of(0, step));
    log.write({.kind = EventKind::saved, .step = 5});
    log.write({.kind = EventKind::evaluation, .step = 8});
    log.write({.kind = EventKind::save, .step = 9});
    log.write({.kind = EventKind::fault, .step = 9, .text = "gone"});
  }
  std::ofstream(path, std::ios::app) << "not a line\n{\"step\": 3}\n{\"time\": 1, \"kind\": \"sto";
  {
    EventLog log(path, {.last_step = 5});
    log.write({.kind = EventKind::start, .step = 5});
  }
  std::vector<std::pair<std::string, std::int64_t>> kept;
  for (const json& line : lines_of_events(path)) kept.emplace_back(line.value("kind", ""), line["step"]);
  EXPECT_EQ(kept, (std::vector<std::pair<std::string, std::int64_t>>{{"start", 0},
                                                                     {"step", 1},
                                                                     {"step", 2},
                                                                     {"step", 3},
                                                                     {"step", 4},
                                                                     {"step", 5},
                                                                     {"saved", 5},
                                                                     {"fault", 9},
                                                                     {"", 3},
                                                                     {"start", 5}}));
  EventLog anew(path, {});
  EXPECT_TRUE(lines_of_events(path).empty());
}

TEST(EventLog, OfARunThatResumesGoesOnWithTheIntervalOfItsLines) {
  const TemporaryFolder folder;
  const std::string path = folder / "events.jsonl";
  const std::int64_t doubling = StepSampling::kLinesBeforeDoubling;
  {
    EventLog log(path, {});
    for (std::int64_t step = 1; step <= doubling; ++step) log.write(step_of(0, step));
  }
  {
    EventLog log(path, {.last_step = doubling});
    for (std::int64_t step = doubling + 1; step <= doubling + 100; ++step) log.write(step_of(0, step));
  }
  EXPECT_EQ(std::ssize(lines_of_events(path)), doubling + 1 + 50) << "the first step and every second one";
}

TEST(EventLog, OnAFullDiskKeepsItsLinesUntilThereIsRoom) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.path() / "disk", "size=64k");
  if (!disk) GTEST_SKIP() << "no disk can be mounted here";
  const std::string path = folder / "disk/events.jsonl";
  EventLog log(path, {});
  log.write({.kind = EventKind::start});
  disk.fill();
  for (std::int64_t step = 1; step <= 200; ++step) log.write(step_of(0, step));
  EXPECT_FALSE(log.failure().empty());
  EXPECT_EQ(log.dropped(), 0);
  disk.empty();
  log.write({.kind = EventKind::end, .step = 200});
  EXPECT_TRUE(log.failure().empty());
  EXPECT_EQ(lines_of_events(path).size(), 202u);
}

TEST(EventLog, TakesALineOfARankThatFails) {
  const TemporaryFolder folder;
  const LoggedEvent fault{.rank = 2, .kind = EventKind::fault, .step = 1, .text = "x"};
  append_event(folder / "absent.jsonl", fault);
  EXPECT_FALSE(std::filesystem::exists(folder / "absent.jsonl")) << "of no run";
  EventLog log(folder / "events.jsonl", {});
  append_event(folder / "events.jsonl", fault);
  log.write({.kind = EventKind::fault, .step = 1});
  EXPECT_EQ(lines_of_events(folder / "events.jsonl").size(), 2u);
}

}  // namespace
}  // namespace lockstep::tests
