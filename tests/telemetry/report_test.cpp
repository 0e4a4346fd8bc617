// A report from records written by hand: every number from its definition.
#include "telemetry/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

StepPoint step_at(std::int64_t step, double seconds, double tokens_per_s, double loss) {
  StepPoint s;
  s.step = step, s.seconds = seconds, s.tokens_per_s = tokens_per_s, s.loss = loss;
  s.time = 1000 + static_cast<double>(step);
  s.mfu = 0.2;
  return s;
}

void use(StepPoint& s, TimeUse use, float seconds) {
  s.slowest_rank = 0;
  s.mean[static_cast<std::size_t>(use)] = seconds;
}

RunRecords records_of(std::vector<StepPoint> steps) {
  RunRecords run;
  run.folder = "runs/a";
  run.steps = std::move(steps);
  for (const StepPoint& step : run.steps) run.mfu.add(step.mfu, step.seconds);
  if (!run.steps.empty()) run.last = run.steps.back();
  run.step_lines = std::ssize(run.steps);
  run.plan.found = true;
  return run;
}

TEST(Reports, TakeTimesFromAllStepsAndSpeedsFromTheMedian) {
  RunRecords run =
      records_of({step_at(1, 9, 1, 5), step_at(2, 0.25, 400, 4), step_at(3, 0.5, 200, 3), step_at(4, 0.125, 800, 2)});
  for (StepPoint& s : run.steps) use(s, TimeUse::compute, 3), use(s, TimeUse::wait_dp, 1);
  run.plan.ranks = 4;
  const Report report = make_report(run);
  EXPECT_EQ(report.time.wall_seconds, 3);
  EXPECT_THAT(report.time.step_seconds, Optional(0.25)) << "without the first step, which warms up";
  EXPECT_THAT(report.efficiency.tokens_per_s, Optional(400.0));
  EXPECT_THAT(report.efficiency.tokens_per_s_rank, Optional(100.0));
  ASSERT_TRUE(report.time.split);
  EXPECT_EQ(report.time.share[static_cast<std::size_t>(TimeUse::compute)], 0.75);
  EXPECT_EQ(report.time.share[static_cast<std::size_t>(TimeUse::wait_dp)], 0.25);
  EXPECT_THAT(report.time.advice, HasSubstr("wait_dp"));
  EXPECT_EQ(report.efficiency.band, "fair");
  run.plan.overlap = false;
  EXPECT_THAT(make_report(run).time.advice, HasSubstr("layout.overlap=on"));
  run.mfu.add(0.9, 1);  // in which more was computed than in the three others
  EXPECT_EQ(make_report(run).time.advice, "") << "good needs none";
}

TEST(Reports, GiveTheMfuOfAllTheTimeButTheFirstStep) {
  std::vector<StepPoint> steps{step_at(1, 9, 1, 5), step_at(2, 1, 1, 5), step_at(3, 1, 1, 5), step_at(4, 8, 1, 5)};
  steps[1].mfu = steps[2].mfu = 0.6, steps[3].mfu = 0.075;
  const ReportedEfficiency e = make_report(records_of(steps)).efficiency;
  EXPECT_THAT(e.mfu, Optional(DoubleEq(0.18))) << "two good steps of ten seconds";
  EXPECT_EQ(e.band, "fair");
}

TEST(Reports, HaveTheSlowestOfTwenty) {
  std::vector<StepPoint> steps{step_at(1, 100, 1, 1)};
  for (int i = 1; i <= 40; ++i) steps.push_back(step_at(i + 1, i, 1, 1));
  EXPECT_THAT(make_report(records_of(steps)).time.slowest_seconds, Optional(38.0));
}

TEST(Reports, CompareOneRankWithOneOfTheBaseline) {
  RunRecords run = records_of({step_at(1, 1, 300, 5)}), base = records_of({step_at(1, 1, 100, 5)});
  run.plan.ranks = 4, base.plan.ranks = 1, base.folder = "runs/one";
  EXPECT_EQ(make_report(run).efficiency.why_unknown, "no baseline");
  const ReportedEfficiency e = make_report(run, &base).efficiency;
  EXPECT_THAT(e.against_baseline, Optional(0.75));
  EXPECT_EQ(e.baseline, "runs/one");
  EXPECT_EQ(e.why_unknown, "");
  base.plan.ranks = 2;
  EXPECT_THAT(make_report(run, &base).efficiency.baseline_rank, Optional(50.0));
  EXPECT_THAT(make_report(run, &base).efficiency.against_baseline, Optional(1.5));
  run.plan.parameters = 1000, base.plan.parameters = 2000;
  EXPECT_FALSE(make_report(run, &base).efficiency.against_baseline);
  EXPECT_THAT(make_report(run, &base).efficiency.why_unknown, HasSubstr("another model"));
  base.plan.parameters = 1000, run.plan.seq = 8, base.plan.seq = 16;
  EXPECT_FALSE(make_report(run, &base).efficiency.against_baseline);
  base.plan.seq = 8;
  EXPECT_TRUE(make_report(run, &base).efficiency.against_baseline);
  base.steps.clear();
  EXPECT_THAT(make_report(run, &base).efficiency.why_unknown, HasSubstr("no speed yet"));
}

TEST(Reports, CountTheRanksThatHaveRecordsWhereThereIsNoPlan) {
  RunRecords run = records_of({step_at(1, 1, 300, 5)});
  run.plan = {};
  EXPECT_FALSE(make_report(run).efficiency.tokens_per_s_rank);
  run.ranks[0], run.ranks[2];
  EXPECT_THAT(make_report(run).efficiency.tokens_per_s_rank, Optional(100.0));
}

TEST(Reports, GiveMfuByBothCounts) {
  RunRecords run = records_of({step_at(1, 1, 300, 5), step_at(2, 1, 300, 5)});
  EXPECT_FALSE(make_report(run).efficiency.mfu_6n);
  run.plan.model_flops_a_step = 8e9, run.plan.model_flops_6n_a_step = 6e9;
  EXPECT_THAT(make_report(run).efficiency.mfu_6n, Optional(DoubleEq(0.2 * 0.75)));
}

TEST(Reports, HoldAPipelineAgainstItsIdeal) {
  RunRecords run = records_of({step_at(1, 1, 300, 5)});
  run.plan.ideal_bubble = 0.2;
  EXPECT_FALSE(make_report(run).pipeline) << "no pipeline";
  run.plan.axes["pp"] = 2;
  EXPECT_FALSE(make_report(run).pipeline) << "nothing measured";
  use(run.steps[0], TimeUse::compute, 3), use(run.steps[0], TimeUse::wait_pp, 2);
  use(run.steps[0], TimeUse::save, 90);  // of no step
  const auto by_waits = make_report(run).pipeline;
  ASSERT_TRUE(by_waits);
  EXPECT_NEAR(by_waits->bubble, 0.4, 1e-6);
  EXPECT_NEAR(by_waits->over_ideal, 0.75, 1e-6);
  run.steps[0].bubble = 0.5f;
  EXPECT_EQ(make_report(run).pipeline->bubble, 0.5) << "as recorded";
  EXPECT_EQ(make_report(run).pipeline->over_ideal, 0.625);
}

TEST(Reports, SayWhatWasLearned) {
  RunRecords run = records_of({step_at(1, 1, 1, 5), step_at(2, 1, 1, 2), step_at(3, 1, 1, 3)});
  EXPECT_EQ(make_report(run).quality.eval_step, -1);
  run.evaluations = {{.step = 2, .loss = 9, .accuracy = 0.1, .time = 0}, {.step = 3, .loss = 2, .time = 0}};
  const ReportedQuality q = make_report(run).quality;
  EXPECT_THAT(q.first_loss, Optional(5.0));
  EXPECT_THAT(q.last_loss, Optional(3.0));
  EXPECT_THAT(q.best_loss, Optional(2.0));
  EXPECT_EQ(q.eval_step, 3);
  EXPECT_THAT(q.perplexity, Optional(DoubleEq(std::exp(2.0))));
  EXPECT_FALSE(q.accuracy) << "the last evaluation has none";
  run.evaluations.back().accuracy = 0.25;
  EXPECT_THAT(make_report(run).quality.accuracy, Optional(0.25));
}

TEST(Reports, PutEachRanksMemoryBesideThePlan) {
  RunRecords run = records_of({step_at(1, 1, 1, 5)});
  run.plan.memory = {{.rank = 0, .peak = 25, .by_tag = {{"weights", 10}, {"gradients", 20}}},
                     {.rank = 1, .peak = 7, .by_tag = {}}};
  run.detail.peak_bytes = {{"weights", 10}, {"gradients", 21}};
  run.ranks[0];
  run.ranks[1].peak_bytes = {{"weights", 7}};
  const std::vector<ReportedMemory> memory = make_report(run).memory;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_THAT(memory[0].planned, Optional(30));
  EXPECT_THAT(memory[0].measured, Optional(31));
  EXPECT_EQ(memory[1].rank, 1);
  EXPECT_THAT(memory[1].planned, Optional(7));
  EXPECT_THAT(memory[1].measured, Optional(7));
}

// Where workers may die, the first server keeps the records, and says so.
TEST(Reports, GiveTheRankThatKeepsTheRecordsItsMemory) {
  RunRecords run = records_of({step_at(1, 1, 1, 5)});
  run.detail.peak_bytes = {{"optimizer", 40}};
  run.ranks[0].peak_bytes = {{"weights", 7}};
  RunEvent start;
  start.rank = 2, start.kind = "start", start.speaks = true;
  run.events.push_back(start);
  const std::vector<ReportedMemory> memory = make_report(run).memory;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].rank, 0);
  EXPECT_THAT(memory[0].measured, Optional(7));
  EXPECT_EQ(memory[1].rank, 2);
  EXPECT_THAT(memory[1].measured, Optional(40));
}

TEST(Reports, CountWorkersThatWereLost) {
  RunRecords run = records_of({step_at(1, 1, 1, 5)});
  EXPECT_FALSE(make_report(run).stability.workers);
  const auto happens = [&](int rank, const char* kind, bool speaks = false) {
    RunEvent& event = run.events.emplace_back();
    event.time = 100.0 + rank, event.rank = rank, event.kind = event.text = kind, event.speaks = speaks;
  };
  happens(4, "start", true);
  happens(0, "join");
  EXPECT_FALSE(make_report(run).stability.workers) << "workers that a run begins with";
  happens(1, "leave");
  happens(0, "leave");
  happens(1, "join");
  const std::optional<WorkerRecord> workers = make_report(run).stability.workers;
  ASSERT_TRUE(workers);
  EXPECT_EQ(workers->lost, 2);
  EXPECT_EQ(workers->joined, 1);
  EXPECT_THAT(workers->away, ElementsAre(0));
  EXPECT_EQ(workers->last, "join");
  EXPECT_EQ(workers->time, 101);
  happens(4, "start", true);
  EXPECT_THAT(make_report(run).stability.workers->away, IsEmpty()) << "all begin again";
}

TEST(Reports, CountWhatWentWrong) {
  RunRecords run = records_of({step_at(1, 1, 1, 5), step_at(2, 1, 1, 5), step_at(3, 1, 1, 50)});
  EXPECT_FALSE(make_report(run).stability.events);
  EXPECT_TRUE(to_json(make_report(run))["stability"]["restarts"].is_null());
  run.not_updated = 3;
  run.overflows = 2;
  run.steps[2].loss_z = 6.5f, run.steps[1].loss_z = 5.5f;
  for (const char* kind : {"start", "fault", "stall", "start", "save", "fault", "start"}) {
    RunEvent event;
    event.rank = 0, event.kind = kind, event.text = std::string("text of ") + kind;
    run.events.push_back(event);
    event.rank = 1;
    if (event.kind == "start") run.events.push_back(event);  // every rank tells of its own
  }
  const ReportedStability s = make_report(run).stability;
  EXPECT_EQ(s.faults, 2);
  EXPECT_EQ(s.fault_texts, (std::vector<std::string>{"text of fault", "text of fault"}));
  EXPECT_EQ(s.stalls, 1);
  EXPECT_EQ(s.restarts, 2);
  EXPECT_EQ(s.skipped, 5);
  EXPECT_EQ(s.overflows, 2);
  EXPECT_EQ(s.spikes, 1);
  EXPECT_FALSE(s.imbalance);
}

TEST(Reports, FindTheBusiestRankInStepsThatAllHave) {
  RunRecords run = records_of({step_at(1, 1, 1, 5)});
  const auto add = [&](int rank, std::int64_t step, float compute, float wait) {
    RankPoint s;
    s.step = step, s.seconds = compute + wait;
    s.uses[static_cast<std::size_t>(TimeUse::compute)] = compute;
    s.uses[static_cast<std::size_t>(TimeUse::wait_dp)] = wait;
    run.ranks[rank].steps.push_back(s);
  };
  add(0, 1, 1000, 0);  // the other has no record of it
  for (std::int64_t step = 2; step < 5; ++step) add(0, step, 1, 2), add(1, step, 3, 0);
  const ReportedStability s = make_report(run).stability;
  EXPECT_EQ(s.busiest_rank, 1);
  EXPECT_THAT(s.imbalance, Optional(0.5));
}

TEST(Reports, OfNothingSayNothing) {
  const nlohmann::ordered_json json = to_json(make_report(RunRecords()));
  for (const char* field : {"step_s", "shares", "advice"}) EXPECT_TRUE(json["time"][field].is_null()) << field;
  for (const auto& [key, value] : json["quality"].items()) EXPECT_TRUE(value.is_null()) << key;
  EXPECT_EQ(json["efficiency"]["unknown"], "no baseline");
  EXPECT_TRUE(json["pipeline"].is_null());
  EXPECT_TRUE(json["memory"].empty());
}

}  // namespace
}  // namespace lockstep
