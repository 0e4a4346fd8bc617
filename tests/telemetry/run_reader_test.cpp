// Reading a run folder: what was written comes back, only new lines are read again, and no file can do harm.
#include "telemetry/run_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "support/program.h"
#include "telemetry/rank_folder.h"
#include "telemetry/step_record.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

class RunFolderRead : public ::testing::Test {
 protected:
  RunFolderRead() { make_rank_folder(folder_.path()); }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name, std::ios::app) << text;
  }
  void replace(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / (name + ".beside")) << text;
    fs::rename(folder_.path() / (name + ".beside"), folder_.path() / name);
  }
  static StepRecord step(std::int64_t number, double loss) {
    StepRecord record{.step = number,
                      .loss = loss,
                      .loss_z = -0.5,
                      .grad_norm = 1.25,
                      .lr = 3e-4,
                      .seconds = 0.5,
                      .tokens_per_s = 1e5,
                      .model_flops_per_s = 1e9,
                      .mfu = 0.25,
                      .updated = true,
                      .bytes = {{"parameter", 100}, {"activation", 50}},
                      .peak_bytes = {{"activation", 700}},
                      .time = 1.7e9 + static_cast<double>(number),
                      .times = std::vector<TimesByUse>(3),
                      .sent = {{"dp", 4, 4096}}};
    for (std::size_t rank = 0; rank < 3; ++rank) {
      record.times[rank][TimeUse::compute] = 0.1 + 0.1 * static_cast<double>(rank);
      record.times[rank][TimeUse::wait_dp] = 0.3 - 0.1 * static_cast<double>(rank);
    }
    return record;
  }

  TemporaryFolder folder_;
};

TEST_F(RunFolderRead, WhatStepsAndEvaluationsWroteComesBack) {
  append("metrics.jsonl", to_json_line(step(1, 1.0 / 3)));
  append("metrics.jsonl", to_json_line(EvalRecord{.step = 1, .loss = 2.5, .time = 1.7e9, .accuracy = 0.375}));
  append("metrics.jsonl", to_json_line(EvalRecord{.step = 2, .loss = 2, .time = 1.7e9}));
  RunReader reader(folder_.path());
  const RunRecords& run = reader.update();
  ASSERT_EQ(run.steps.size(), 1u);
  const StepPoint& point = run.steps[0];
  EXPECT_EQ(point.step, 1);
  EXPECT_EQ(point.loss, 1.0 / 3);
  EXPECT_EQ(point.grad_norm, 1.25);
  EXPECT_EQ(point.lr, 3e-4);
  EXPECT_EQ(point.seconds, 0.5);
  EXPECT_EQ(point.tokens_per_s, 1e5);
  EXPECT_EQ(point.mfu, 0.25);
  EXPECT_EQ(point.time, 1.7e9 + 1);
  EXPECT_EQ(point.bytes, 150);
  EXPECT_EQ(point.loss_z, -0.5F);
  EXPECT_TRUE(point.updated);
  EXPECT_EQ(point.slowest_rank, 2);
  EXPECT_NEAR(point.mean[0], 0.2, 1e-7);
  EXPECT_NEAR(point.most[0], 0.3, 1e-7);
  EXPECT_NEAR(point.share(TimeUse::wait_dp), 0.5, 1e-6);
  EXPECT_EQ(run.detail.rank_of_most[0], 2);
  EXPECT_EQ(run.detail.peak_bytes.at("activation"), 700);
  EXPECT_EQ(run.detail.sent.at("dp").bytes, 4096);
  ASSERT_EQ(run.evaluations.size(), 2u);
  EXPECT_EQ(run.evaluations[0].loss, 2.5);
  EXPECT_EQ(run.evaluations[0].accuracy, 0.375);
  EXPECT_FALSE(known(run.evaluations[1].accuracy));
  EXPECT_EQ(run.bad_lines, 0);
}

TEST_F(RunFolderRead, OnlyNewLinesAreReadAndHalfALineIsLeftForLater) {
  const std::string first = to_json_line(step(1, 3)), second = to_json_line(step(2, 2));
  append("metrics.jsonl", first + second.substr(0, 40));
  RunReader reader(folder_.path());
  EXPECT_EQ(reader.update().steps.size(), 1u);
  // What was read is not read again: damage to it goes unseen.
  std::fstream(folder_.path() / "metrics.jsonl", std::ios::in | std::ios::out) << "XXXXXXXX";
  append("metrics.jsonl", second.substr(40));
  EXPECT_EQ(reader.update().steps.size(), 2u);
  EXPECT_EQ(reader.records().last.loss, 2);
  EXPECT_EQ(reader.records().bad_lines, 0);
  EXPECT_EQ(reader.records().generation, 0);
}

TEST_F(RunFolderRead, AFileThatAResumedRunReplacedOrCutIsReadAnew) {
  append("metrics.jsonl", to_json_line(step(1, 3)) + to_json_line(step(2, 2)) + to_json_line(step(3, 1)));
  RunReader reader(folder_.path());
  EXPECT_EQ(reader.update().steps.size(), 3u);
  replace("metrics.jsonl", to_json_line(step(1, 3)) + to_json_line(step(2, 5)) + to_json_line(step(3, 4)) +
                               to_json_line(step(4, 4)));  // longer, and another file
  EXPECT_EQ(reader.update().steps.size(), 4u);
  EXPECT_EQ(reader.records().steps[1].loss, 5);
  EXPECT_EQ(reader.records().generation, 1);
  fs::resize_file(folder_.path() / "metrics.jsonl", to_json_line(step(1, 3)).size());
  EXPECT_EQ(reader.update().steps.size(), 1u);
  EXPECT_EQ(reader.records().generation, 2);
  fs::remove(folder_.path() / "metrics.jsonl");
  EXPECT_TRUE(reader.update().steps.empty());
  EXPECT_EQ(reader.records().last.step, -1);
}

TEST_F(RunFolderRead, FieldsNotKnownAreSkippedAndBadLinesCounted) {
  append("metrics.jsonl",
         "{\"step\": 7, \"loss\": 1.5, \"new\": [1, {\"loss\": 9}], \"deep\": {\"a\": {\"b\": {\"c\": 1}}}, \"lr\": "
         "\"x\"}\n"
         "not json\n\n[1]\n7\n{\"step\": -3, \"loss\": 1}\n{\"loss\": 1}\n{\"step\": 8}\n"
         "{\"step\": 9, \"loss\": null, \"updated\": false, \"step_ms\": null, \"mfu\": null}\n");
  const RunRecords run = RunReader(folder_.path()).update();
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[0].loss, 1.5);
  EXPECT_FALSE(known(run.steps[0].lr));
  EXPECT_FALSE(run.steps[0].has_times());
  EXPECT_EQ(run.bad_lines, 7);
  EXPECT_EQ(run.not_updated, 1);
  EXPECT_EQ(run.first_not_updated, 9);
  EXPECT_EQ(run.first_bad_loss, 7);  // it has no norm
  EXPECT_FALSE(known(run.last.loss));
}

// A step that overflowed is not one of bad values: the doctor has nothing to say of it.
TEST_F(RunFolderRead, OverflowsAreCountedApart) {
  append("metrics.jsonl",
         "{\"step\": 1, \"loss\": 2, \"grad_norm\": null, \"updated\": false, \"loss_scale\": 8, \"overflow\": true}\n"
         "{\"step\": 2, \"loss\": 2, \"grad_norm\": 1, \"updated\": true, \"loss_scale\": 4, \"overflow\": false}\n");
  RunReader reader(folder_.path());
  const RunRecords& run = reader.update();
  EXPECT_EQ(run.overflows, 1);
  EXPECT_EQ(run.not_updated, 0);
  EXPECT_EQ(run.first_not_updated, -1);
  EXPECT_EQ(run.first_bad_loss, -1);
  append("metrics.jsonl", "{\"step\": 3, \"loss\": 2, \"grad_norm\": null, \"updated\": false, \"overflow\": false}\n");
  reader.update();
  EXPECT_EQ(run.overflows, 1);
  EXPECT_EQ(run.first_not_updated, 3);
}

TEST_F(RunFolderRead, CheckpointsAreThoseThatWereCompleted) {
  append("metrics.jsonl", to_json_line(step(1, 3)));
  RunReader reader(folder_.path());
  EXPECT_TRUE(reader.update().checkpoints.empty());
  const fs::path all = folder_.path() / "checkpoints";
  for (const char* name : {"step-00000100", "step-100000000", ".partial-step-00000200", "step-00000300", "step-x", "a"})
    fs::create_directories(all / name);
  for (const char* name : {"step-00000100", "step-100000000", ".partial-step-00000200", "step-x", "a"})
    append(fs::path("checkpoints") / name / "manifest.json", "{}");
  EXPECT_EQ(reader.update().checkpoints,
            (std::map<std::int64_t, std::string>{{100, "step-00000100"}, {100'000'000, "step-100000000"}}));
  fs::remove_all(all);
  EXPECT_TRUE(reader.update().checkpoints.empty());
}

TEST_F(RunFolderRead, TheMfuIsOfAllTheTimeButTheFirstStep) {
  const auto line = [](int at, double ms, const char* mfu) {
    return fmt::format("{{\"step\": {}, \"loss\": 1, \"step_ms\": {}, \"mfu\": {}}}\n", at, ms, mfu);
  };
  append("metrics.jsonl", line(1, 1000, "0.9"));
  RunReader reader(folder_.path());
  EXPECT_FALSE(reader.update().mfu.value());
  append("metrics.jsonl", line(2, 1000, "0.6") + line(3, 100, "null") + line(4, 3000, "0.2"));
  EXPECT_THAT(reader.update().mfu.value(), testing::Optional(testing::DoubleNear(0.3, 1e-12)));
  replace("metrics.jsonl", line(1, 1000, "0.9") + line(2, 1000, "0.5"));
  EXPECT_THAT(reader.update().mfu.value(), testing::Optional(0.5));
}

TEST_F(RunFolderRead, EachRanksRecordsAndItsLastWordComeBack) {
  TimesByUse times;
  times[TimeUse::compute] = 0.25;
  times[TimeUse::wait_pp] = 0.5;
  append("ranks/rank-00012.jsonl", rank_json(3, times, {{"pp", 2, 64}}) + "\n{\"step\"");
  append("ranks/rank-00013.jsonl",
         "{\"step\": 1, \"ms\": 2, \"bytes\": {\"gradient\": 5}, \"peak_bytes\": {\"gradient\": 9}}\nx\n");
  append("ranks/rank-00012.now", to_json_line(RankNow{.rank = 12, .pid = ::getpid(), .step = 4}));
  append("ranks/rank-00013.now", "damaged");
  append("ranks/rank-x.jsonl", "{\"step\": 1}\n");
  append("ranks/rank-1.jsonl.partial", "{\"step\": 1}\n");
  RunReader reader(folder_.path());
  const RunRecords& run = reader.update();
  ASSERT_EQ(run.ranks.size(), 2u);
  const RankPoint& read = run.ranks.at(12).steps.at(0);
  EXPECT_EQ(read.step, 3);
  EXPECT_FLOAT_EQ(read.seconds, 0.75);
  EXPECT_NEAR(read.waited(), 0.5, 1e-6);
  EXPECT_NEAR(read.busy(), 0.25, 1e-6);
  EXPECT_EQ(run.ranks.at(12).sent.at("pp").calls, 2);
  EXPECT_EQ(run.ranks.at(13).peak_bytes.at("gradient"), 9);
  EXPECT_EQ(run.bad_lines, 1);
  EXPECT_EQ(run.bad_files, 1);
  EXPECT_EQ(run.bad_by_file,
            (std::map<std::string, std::int64_t>{{"ranks/rank-00013.jsonl", 1}, {"ranks/rank-00013.now", 1}}));
  ASSERT_EQ(run.now.size(), 1u);
  EXPECT_EQ(run.now.at(12).now.step, 4);
  append("ranks/rank-00012.jsonl", ": 4, \"ms\": 1}\n");
  EXPECT_EQ(reader.update().ranks.at(12).steps.size(), 2u);
}

TEST_F(RunFolderRead, OfALongRankFileTheNewestRecordsAreHeld) {
  std::string lines;
  for (int i = 1; i <= 5000; ++i) lines += fmt::format("{{\"step\": {}, \"ms\": 1}}\n", i);
  append("ranks/rank-00000.jsonl", lines);
  const RunRecords run = RunReader(folder_.path(), {.most_rank_steps = 20, .most_rank_bytes = 1000}).update();
  const RankHistory& rank = run.ranks.at(0);
  EXPECT_EQ(rank.steps.size(), 20u);
  EXPECT_EQ(rank.steps.front().step, 4981);
  EXPECT_EQ(rank.steps.back().step, 5000);
  EXPECT_LT(rank.lines, 60);
  EXPECT_EQ(run.bad_lines, 0);  // the line in whose middle reading began is not one
}

TEST_F(RunFolderRead, EventsPlanAndLogComeBack) {
  append("events.jsonl",
         "{\"time\": 5.5, \"error\": 1e-4, \"rank\": 2, \"kind\": \"fault\", \"step\": 7, \"seconds\": null, \"text\": "
         "\"gone\"}\n"
         "{\"time\": 6, \"kind\": \"step\", \"rank\": 0}\n{}\n");
  append(
      "plan.json",
      "{\"layout\": \"dp=2\", \"ranks\": 2, \"axes\": {\"dp\": 2}, \"overlap\": false, \"lr\": 1e-3, \"link\": null, "
      "\"memory\": [{\"rank\": 1, \"peak\": 900, \"bytes\": {\"activation\": 800}}, 3], "
      "\"sent\": [{\"rank\": 0, \"dp\": {\"calls\": 2, \"bytes\": 64}}], "
      "\"ideal\": {\"bubble\": 0.25, \"spans\": [{\"rank\": 0, \"name\": \"F0\", \"begin\": 0, \"end\": 0.5}]}, "
      "\"micro\": \"many\"}");
  append("log.txt", "one\ntwo\nthree\n");
  RunReader reader(folder_.path(), {.most_log_lines = 2});
  const RunRecords& run = reader.update();
  ASSERT_EQ(run.events.size(), 1u);
  EXPECT_EQ(run.events[0].kind + " " + run.events[0].text, "fault gone");
  EXPECT_EQ(run.events[0].rank, 2);
  EXPECT_EQ(run.events[0].error, 1e-4);
  EXPECT_FALSE(known(run.events[0].seconds));
  EXPECT_EQ(run.step_events.size(), 1u);
  EXPECT_EQ(run.bad_lines, 1);
  EXPECT_TRUE(run.plan.found);
  EXPECT_EQ(run.plan.layout, "dp=2");
  EXPECT_EQ(run.plan.overlap, false);
  EXPECT_EQ(run.plan.lr, 1e-3);
  EXPECT_EQ(run.plan.axes.at("dp"), 2);
  EXPECT_FALSE(run.plan.micro || run.plan.link_latency_s);
  ASSERT_EQ(run.plan.memory.size(), 1u);
  EXPECT_EQ(run.plan.memory[0].by_tag.at("activation"), 800);
  EXPECT_EQ(run.plan.sent.at(0).by_axis.at("dp").bytes, 64);
  EXPECT_EQ(run.plan.ideal_bubble, 0.25);
  EXPECT_EQ(run.plan.ideal.at(0).name, "F0");
  EXPECT_THAT(run.log, testing::ElementsAre("two", "three"));
}

TEST_F(RunFolderRead, FilesOfRanksThatThePlanDoesNotHaveAreOfAnEarlierRun) {
  append("metrics.jsonl", to_json_line(step(1, 1)));
  for (const char* rank : {"0", "1", "2"})
    append(std::string("ranks/rank-0000") + rank + ".jsonl", "{\"step\": 1, \"ms\": 5}\n");
  RunReader reader(folder_.path());
  EXPECT_EQ(reader.update().ranks.size(), 3u) << "without a plan all are taken";
  replace("plan.json", R"({"ranks": 2})");
  EXPECT_EQ(reader.update().ranks.size(), 2u);
  EXPECT_FALSE(reader.update().ranks.contains(2));
}

TEST_F(RunFolderRead, BeyondTheBoundEverySecondStepIsHeld) {
  {
    std::ofstream out(folder_.path() / "metrics.jsonl");
    for (int i = 1; i <= 1000; ++i) out << "{\"step\": " << i << ", \"loss\": " << i << ", \"grad_norm\": 1}\n";
  }
  const RunRecords run = RunReader(folder_.path(), {.most_steps = 300}).update();
  EXPECT_EQ(run.every, 4);
  EXPECT_EQ(run.steps.size(), 250u);
  for (const StepPoint& point : run.steps) EXPECT_EQ(point.step % 4, 0);
  EXPECT_EQ(run.step_lines, 1000);
  EXPECT_EQ(run.last.step, 1000);
}

TEST_F(RunFolderRead, WhoHoldsTheLockIsKnownWithoutTakingIt) {
  append("metrics.jsonl", "");
  append(".lock", "");
  RunReader reader(folder_.path());
  if (!reader.update().running) GTEST_SKIP() << "there is no /proc/locks here";
  EXPECT_FALSE(*reader.records().running);
  const int descriptor = ::open((folder_.path() / ".lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(*reader.update().running);
  ::close(descriptor);
  EXPECT_FALSE(*reader.update().running);
}

TEST(RunFolderRefused, IsNamedWithARemedy) {
  const TemporaryFolder folder;
  for (const fs::path& path : {folder.path(), folder.path() / "none"}) try {
      RunReader reader(path);
      ADD_FAILURE() << path;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      EXPECT_THAT(error.what(), testing::HasSubstr("name a run folder"));
    }
}

TEST_F(RunFolderRead, DamageAnywhereIsReadOrCounted) {
  const std::string good = to_json_line(step(1, 2)) + to_json_line(step(2, 2));
  const std::string plan = "{\"layout\": \"dp=2\", \"memory\": [{\"rank\": 1, \"peak\": 900}]}";
  std::mt19937 random(7);
  for (int trial = 0; trial < 100; ++trial) {
    std::string text = good, other = plan;
    for (int i = 0; i < 4; ++i) {
      text[random() % text.size()] = static_cast<char>(random());
      other[random() % other.size()] = static_cast<char>(random());
    }
    for (const char* name :
         {"metrics.jsonl", "events.jsonl", "ranks/rank-00000.jsonl", "ranks/rank-00000.now", "log.txt"})
      replace(name, text);
    replace("plan.json", other);
    RunReader(folder_.path()).update();
  }
}

TEST_F(RunFolderRead, ALineThatIsTooLongIsOneBadLine) {
  append("metrics.jsonl",
         "{\"step\": 1, \"loss\": 1, \"x\": \"" + std::string(9 << 20, 'a') + "\"}\n" + to_json_line(step(2, 2)));
  const RunRecords run = RunReader(folder_.path()).update();
  EXPECT_EQ(run.bad_lines, 1);
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_EQ(run.steps[0].step, 2);
}

}  // namespace
}  // namespace lockstep::tests
