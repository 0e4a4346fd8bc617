// A run of a million steps and one of a thousand ranks: every answer is small and soon there, and memory is bounded.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dashboard/dashboard.h"
#include "dashboard/downsample.h"
#include "dashboard/run_answers.h"
#include "dashboard/trace_answers.h"
#include "dashboard/written_run.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * 4096;
}

class LargeRun : public ::testing::Test {
 protected:
  HttpAnswer ask(Dashboard& dashboard, const std::string& what, std::map<std::string, std::string> query) {
    const Clock::time_point begin = Clock::now();
    HttpAnswer answer =
        dashboard.answer({.method = "GET", .path = "/api/" + what, .query = std::move(query), .host = "localhost"});
    seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_EQ(answer.status, 200) << what;
    return answer;
  }
  TemporaryFolder folder_;
  double seconds_ = 0;
};

TEST_F(LargeRun, AMillionStepsAnswerSoonInBoundedMemory) {
  const std::int64_t steps = kUnderSanitizer ? 100'000 : 1'000'000;
  const std::int64_t spike = steps * 7 / 9;
  std::filesystem::create_directories(folder_.path() / "a");
  {
    std::ofstream out(folder_.path() / "a" / "metrics.jsonl");
    for (std::int64_t step = 1; step <= steps; ++step)
      out << fmt::format(
          R"({{"step": {}, "loss": {}, "grad_norm": 1.5, "lr": 0.001, "step_ms": 250.5, "tokens_per_s": 4096, "mfu": 0.375, "time": {}}})"
          "\n",
          step, step == spike ? 99.5 : 2 + 1e-6 * static_cast<double>(step % 1000), 1.7e9 + static_cast<double>(step));
  }
  const std::int64_t before = resident_bytes();
  Dashboard dashboard({.folder = folder_.path()});
  ask(dashboard, "curves", {{"run", "a"}});
  EXPECT_LT(seconds_, 30 * kSlowdown) << "the first time, when the whole file is read";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const HttpAnswer answer = ask(dashboard, "curves", {{"run", "a"}});
  EXPECT_LT(seconds_, 2 * kSlowdown) << "once it is known";
  EXPECT_LT(answer.body.size(), 1'500'000u);
  const Json curves = Json::parse(answer.body);
  EXPECT_LE(curves["loss"]["x"].size(), kMostCurvePoints);
  bool seen = false;
  for (std::size_t i = 0; i < curves["loss"]["x"].size(); ++i)
    seen = seen || (curves["loss"]["x"][i] == spike && curves["loss"]["y"][i] == 99.5);
  EXPECT_TRUE(seen) << "the spike of one step";
  EXPECT_EQ(curves["loss"]["x"].back(), steps);
  const Json near = Json::parse(
      ask(dashboard, "curves", {{"run", "a"}, {"from", std::to_string(spike - 5)}, {"to", std::to_string(spike + 5)}})
          .body);
  EXPECT_EQ(near["loss"]["x"].size(), 11u) << "every step can be seen when it is asked for";
  ask(dashboard, "runs", {});
  EXPECT_LT(seconds_, 1 * kSlowdown);
  if (!kUnderSanitizer) {
    EXPECT_LT(resident_bytes() - before, std::int64_t{512} << 20);
  }
}

TEST_F(LargeRun, AThousandRanksAnswerSoon) {
  write_run(folder_.path() / "a", 60, 1000);
  Dashboard dashboard({.folder = folder_.path()});
  for (const char* what : {"times", "memory", "events", "curves"}) {
    const HttpAnswer answer = ask(dashboard, what, {{"run", "a"}});
    EXPECT_LT(seconds_, 5 * kSlowdown) << what;
    EXPECT_LT(answer.body.size(), 1'000'000u) << what;
    if (std::string(what) != "times") continue;
    const Json times = Json::parse(answer.body);
    ASSERT_EQ(times["ranks"].size(), 1000u);
    EXPECT_EQ(times["ranks"][999]["rank"], 999);
  }
}

TEST_F(LargeRun, OfMoreRanksTheBusiestOfEachGroupIsShown) {
  RunRecords run;
  for (int rank = 0; rank < 5000; ++rank) {
    RankPoint step{.step = 1, .seconds = 1};
    step.uses[static_cast<std::size_t>(TimeUse::compute)] = rank == 3333 ? 0.9F : 0.5F;
    step.uses[static_cast<std::size_t>(TimeUse::wait_dp)] = rank == 3333 ? 0.1F : 0.5F;
    run.ranks[rank].steps.push_back(step);
  }
  const Json times = times_json(run);
  EXPECT_LE(times["ranks"].size(), kMostRankRows);
  bool seen = false;
  std::int64_t all = 0;
  for (const Json& row : times["ranks"]) {
    seen = seen || row["rank"] == 3333;
    all += row["of"].get<std::int64_t>();
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(all, 5000);
}

Trace trace_of(int ranks, int spans) {
  Trace trace;
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < spans; ++i)
      trace.spans.push_back({.name = i % 2 ? "block.1 backward" : "block.1 forward",
                             .kind = i % 5 == 4 ? SpanKind::wait : SpanKind::compute,
                             .rank = rank,
                             .step = 7,
                             .position = -1,
                             .begin = 10 + 1e-4 * i,
                             .end = 10 + 1e-4 * i + 0.9e-4,
                             .micro = i % 4});
  return trace;
}

TEST_F(LargeRun, ATimelineOfAThousandRanksIsBoundedAndZooms) {
  const Trace trace = trace_of(1000, 1000);
  const auto count = [](const Json& timeline) {
    std::size_t all = 0;
    for (const Json& row : timeline["rows"]) all += row["spans"].size();
    return all;
  };
  const Clock::time_point begin = Clock::now();
  const Json whole = timeline_json(trace, {.ranks = 100'000});
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 3 * kSlowdown);
  EXPECT_EQ(whole["ranks"], 1000);
  EXPECT_EQ(whole["rows"].size(), kMostTimelineRows);
  EXPECT_LE(count(whole), kMostShownSpans);
  const Json near = timeline_json(trace, {.step = 7, .from = 0.01, .to = 0.011, .first_rank = 990, .ranks = 5});
  EXPECT_EQ(near["rows"].size(), 5u);
  EXPECT_EQ(near["rows"][0]["rank"], 990);
  ASSERT_GE(near["rows"][0]["spans"].size(), 10u);
  EXPECT_LE(near["rows"][0]["spans"].size(), 13u);
  for (const Json& span : near["rows"][0]["spans"]) {
    EXPECT_NEAR(span[1].get<double>() - span[0].get<double>(), 90, 1e-6) << "none is joined with another";
    EXPECT_GE(span[4], 0);
  }
}

TEST_F(LargeRun, SpansThatAreTooShortToBeSeenAreJoinedAndNoTimeIsLost) {
  Trace trace = trace_of(1, 200'000);
  for (TraceSpan& span : trace.spans) span.kind = SpanKind::compute;
  const Json whole = timeline_json(trace, {.ranks = 1});
  const Json& spans = whole["rows"][0]["spans"];
  EXPECT_LE(spans.size(), kMostShownSpans);
  double shown = 0;
  for (const Json& span : spans) shown += span[1].get<double>() - span[0].get<double>();
  EXPECT_NEAR(shown, 2e7, 1e5) << "microseconds";
  EXPECT_EQ(spans[0][4], -2) << "several";
}

TEST(ShownSchedule, IsTheMeasuredOneBesideTheIdealOne) {
  Trace trace;
  trace.stage_of = {0, 0, 1, 1};
  for (const int rank : {0, 1, 2, 3})
    for (int i = 0; i < 2; ++i)
      for (int part = 0; part < 2; ++part)  // two units for each entry of the schedule
        trace.spans.push_back({.name = i ? "block.0 backward input" : "block.0 forward",
                               .kind = SpanKind::compute,
                               .rank = rank,
                               .step = 3,
                               .position = i,
                               .begin = 1.0 + i * 2 + part * 0.5 + (rank >= 2 ? 0.5 : 0),
                               .end = 1.5 + i * 2 + part * 0.5 + (rank >= 2 ? 0.5 : 0),
                               .micro = i});
  const RunPlan plan = parse_run_plan(
      R"({"ideal": {"bubble": 0.25, "spans": [{"rank": 0, "name": "F0", "begin": 0, "end": 0.5}, {"rank": 2, "name": "B0", "begin": 0.5, "end": 1},
          {"rank": 3, "name": "B0", "begin": 0.5, "end": 1}]}})");
  const Json schedule = schedule_json(trace, plan);
  EXPECT_EQ(schedule["rows"], Json::parse(R"([{"rank": 0, "stage": 0}, {"rank": 2, "stage": 1}])"));
  ASSERT_EQ(schedule["measured"].size(), 4u);
  EXPECT_EQ(schedule["measured"][0], Json::parse(R"([0, "F0", 0.0, 0.2857142857142857, false])"));
  EXPECT_EQ(schedule["measured"][1][1], "B1");
  EXPECT_NEAR(schedule["measured_bubble"].get<double>(), 1 - 4 / 7.0, 1e-9);
  EXPECT_EQ(schedule["ideal"].size(), 2u);
  EXPECT_EQ(schedule["ideal_bubble"], 0.25);
  EXPECT_TRUE(schedule_json(Trace{}, plan).is_null());
}

}  // namespace
}  // namespace lockstep::tests
