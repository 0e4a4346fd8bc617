// lockstep doctor on runs whose trouble does not depend on how fast this machine is: each is provoked by a real run,
// and named first. tests/timing/doctor_test.cpp has what is a matter of time, tests/processes/doctor_test.cpp what
// happens to processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "support/diagnosis.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/sanitizer.h"
#include "support/small_disk.h"
#include "telemetry/rank_now.h"
#include "telemetry/run_reader.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorOfARun : public ::testing::Test {
 protected:
  DoctorOfARun() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 30); }
  std::vector<std::string> command(const std::vector<std::string>& more, const std::string& out = "run") const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / out, "--set", "train.eval_every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome train(const std::vector<std::string>& more) const { return run_program(command(more)); }
  Diagnosis diagnosis(const std::string& out = "run") const { return diagnosis_of(folder_ / out); }
  void expect_first(const std::string& name) const {
    const Diagnosis found = diagnosis();
    EXPECT_EQ(found.code, 1) << found.text;
    ASSERT_FALSE(found.names.empty()) << found.text;
    EXPECT_EQ(found.names[0], name) << found.text;
  }
  TemporaryFolder folder_;
};

TEST_F(DoctorOfARun, NamesTheFirstBadTensorAndTheRate) {
  EXPECT_EQ(train({"--set", "optim.lr=1000", "--set", "optim.clip=0", "--set", "train.steps=60"}).code, 1);
  expect_first("not_finite");
  EXPECT_THAT(diagnosis().first, AllOf(HasSubstr("the first was "), HasSubstr("lower optim.lr (now 1000)"),
                                       HasSubstr("optim.warmup"), HasSubstr("clip gradients with optim.clip=1.0"),
                                       HasSubstr("--overwrite --set optim.lr=333.333`: no checkpoint is from before")));
  // From the newest checkpoint before the bad step, not from the one that was saved in it.
  EXPECT_EQ(train({"--set", "optim.lr=1000", "--set", "optim.clip=0", "--set", "train.steps=60", "--set",
                   "train.save_every=2", "--set", "train.keep=100", "--overwrite"})
                .code,
            1);
  const RunRecords run = read_run(folder_ / "run");
  ASSERT_GT(run.first_not_updated, 2);
  const std::int64_t good = (run.first_not_updated - 1) / 2 * 2;
  EXPECT_THAT(diagnosis().first, HasSubstr(fmt::format("`lockstep train --resume {}/checkpoints/step-{:08} --set "
                                                       "optim.lr=333.333`: the newest checkpoint before it",
                                                       folder_ / "run", good)));
}

TEST_F(DoctorOfARun, NamesAJumpOfTheLoss) {
  ASSERT_EQ(train({"--set", "optim.schedule=constant", "--set", "train.steps=40"}).code, 0);
  EXPECT_THAT(diagnosis().names, Not(testing::Contains("loss_spike")));
  ASSERT_EQ(run_program({"train", "--resume", folder_ / "run", "--set", "train.steps=50", "--set", "optim.lr=3"}).code,
            0);
  expect_first("loss_spike");
  EXPECT_THAT(diagnosis().first, AllOf(HasSubstr("the loss jumped at step 4"), HasSubstr("has not come back"),
                                       HasSubstr("times the usual"), HasSubstr("lower optim.lr (now 3)")));
}

TEST_F(DoctorOfARun, NamesMicroBatchesThatAreTooSmall) {
  ASSERT_EQ(train({"--set", "data.seq=2", "--set", "train.global_batch=64", "--layout", "micro=64", "--set",
                   "train.steps=40", "--set", "train.save_last=false"})
                .code,
            0);
  expect_first("small_micro_batches");
  EXPECT_THAT(diagnosis().first, AllOf(HasSubstr("a rank computes 2 tokens at once"), HasSubstr("layout.micro=8")));
}

TEST_F(DoctorOfARun, NamesSavesAndEvaluationsThatTakeTheTime) {
  ASSERT_EQ(train({"--set", "train.save_every=1", "--set", "train.async_save=false", "--set", "train.steps=20"}).code,
            0);
  expect_first("slow_saves");
  ASSERT_EQ(train({"--set", "train.eval_every=1", "--set", "train.steps=20", "--overwrite"}).code, 0);
  expect_first("slow_evaluation");
}

TEST_F(DoctorOfARun, NamesAFullDiskWhileItIsFullAndNotAfterwards) {
  // Large enough that what the run itself writes, a few hundred kB every second, fills it in no test.
  const SmallDisk disk(folder_ / "run", "size=256m");
  if (!disk) GTEST_SKIP() << "this user may not mount a small tmpfs";
  Program run(
      command({"--set", "train.steps=1000000", "--set", "train.save_every=20", "--set", "optim.schedule=constant"}));
  run.wait_for_output("step 20: checkpoint saved");
  disk.fill();
  run.wait_for_output("metrics.jsonl: write failed: No space left on device");
  expect_first("full_disk");
  EXPECT_THAT(diagnosis().first, AllOf(HasSubstr("is full"), HasSubstr("are free there"), HasSubstr("train.keep")));
  disk.empty();
  run.wait_for_output("metrics.jsonl is written again");
  const auto is_full = [&] {
    const std::vector<std::string> names = diagnosis().names;
    return std::ranges::find(names, "full_disk") != names.end();
  };
  for (int i = 0; i < 300 && is_full(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until a checkpoint is saved
  EXPECT_THAT(diagnosis().names, Not(testing::Contains("full_disk")));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 0);
}

TEST_F(DoctorOfARun, NamesThePeakInBackwardAndWhatMadeIt) {
  if (kUnderSanitizer) GTEST_SKIP() << "a sanitizer takes more addresses than the limit of memory leaves";
  const std::vector<std::string> arguments =
      command({"--set", "model.preset=llama-1m", "--set", "data.seq=64", "--set", "train.global_batch=64", "--set",
               "train.steps=40", "--set", "train.save_last=false"});
  const auto used_under = [&](std::int64_t limit) {
    std::vector<std::string> all = arguments;
    all.push_back("--overwrite");
    const Outcome outcome = Program(all, "/", {"prlimit", fmt::format("--data={}", limit)}).wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_rank_now(folder_ / "run/ranks/rank-00000.now").value().memory.value();
  };
  // What it needs, where no limit is near; then with a limit that leaves little.
  const RankMemory roomy = used_under(std::int64_t{1} << 30);
  EXPECT_THAT(diagnosis().names, Not(testing::Contains("memory_peak")));
  ASSERT_EQ(roomy.limit, std::int64_t{1} << 30);
  used_under(roomy.used * 10 / 9);
  const Diagnosis found = diagnosis();
  EXPECT_EQ(found.names.back(), "memory_peak") << found.text;  // what is slow comes before it, on a busy machine
  EXPECT_THAT(found.text, AllOf(HasSubstr("the peak, in the backward, is made by tag 'activation'"),
                                HasSubstr("memory.recompute=projections"), HasSubstr("layout.micro=2"),
                                HasSubstr("layout.bucket")));
}

TEST_F(DoctorOfARun, NamesARunThatWasKilled) {
  Program run(command({"--set", "train.steps=1000000", "--set", "optim.schedule=constant", "--ranks", "2"}));
  run.wait_for_output("step      20/");
  for (int i = 0; i < 100 && !std::filesystem::exists(folder_ / "run/ranks/rank-00001.now"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  run.signal(SIGKILL);
  run.wait();
  expect_first("killed_rank");
  const std::string resume = fmt::format("lockstep train {0}/run.toml --out {0} --resume", folder_ / "run");
  EXPECT_THAT(diagnosis().first,
              AllOf(HasSubstr("all 2 ranks were killed"), HasSubstr("`" + resume + "` begins again")));
  // And the command does.
  const Outcome again = run_program({"train", folder_ / "run/run.toml", "--out", folder_ / "run", "--resume", "--set",
                                     "train.steps=3", "--set", "train.save_every=2"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("step 1/3"));
}

TEST_F(DoctorOfARun, SaysThatTheUserEndedIt) {
  Program run(command({"--set", "train.steps=1000000", "--set", "optim.schedule=constant", "--set",
                       "train.save_every=10", "--set", "train.global_batch=512"}));
  run.wait_for_output("step 10: checkpoint saved");
  for (int i = 0; i < 100 && !std::filesystem::exists(folder_ / "run/ranks/rank-00000.now"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  run.signal(SIGINT);
  run.signal(SIGTERM);
  ASSERT_EQ(run.wait().code, 130);
  expect_first("interrupted");
  EXPECT_THAT(diagnosis().text, AllOf(Not(HasSubstr("killed_rank")), Not(HasSubstr("dmesg"))));
  EXPECT_THAT(
      diagnosis().first,
      HasSubstr(fmt::format("`lockstep train --resume {}` continues from the newest checkpoint", folder_ / "run")));
}

TEST_F(DoctorOfARun, NamesALossThatRisesFromTheFirstStep) {
  ASSERT_EQ(train({"--set", "optim.lr=10", "--set", "optim.clip=0", "--set", "optim.schedule=constant", "--set",
                   "train.steps=30"})
                .code,
            0);
  const Diagnosis found = diagnosis();
  EXPECT_THAT(found.names, testing::Contains("diverged")) << found.text;
  EXPECT_THAT(found.text, AllOf(HasSubstr("the loss has risen instead of fallen"), HasSubstr("optim.lr (now 10)"),
                                HasSubstr("--overwrite --set optim.lr=3.33333")));
}

TEST_F(DoctorOfARun, NamesRecordsThatSomethingHasDamaged) {
  ASSERT_EQ(train({"--set", "train.steps=20"}).code, 0);
  EXPECT_THAT(diagnosis().names, Not(testing::Contains("damaged_records")));
  std::ofstream(folder_ / "run/metrics.jsonl", std::ios::app) << "{\"step\": 21, \"lo\nnot a line\n";
  std::ofstream(folder_ / "run/events.jsonl", std::ios::app) << "\n";
  const Diagnosis found = diagnosis();
  EXPECT_THAT(found.names, testing::Contains("damaged_records")) << found.text;
  EXPECT_THAT(found.text,
              AllOf(HasSubstr("metrics.jsonl: 2 lines are no records"), HasSubstr("events.jsonl: 1 line is")));
  ASSERT_EQ(run_program({"train", "--resume", folder_ / "run", "--set", "train.steps=22"}).code, 0);
  EXPECT_THAT(diagnosis().names, Not(testing::Contains("damaged_records"))) << "as the remedy says";
}

TEST_F(DoctorOfARun, SpeaksPlainTextAndItsExitCodeSaysWhetherThereIsAnything) {
  EXPECT_EQ(train({"--set", "optim.lr=1000", "--set", "optim.clip=0", "--set", "train.steps=60"}).code, 1);
  const Outcome outcome = run_program({"doctor", folder_ / "run"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, testing::StartsWith("not_finite (stopped): a value was not finite in step "));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\n  seen: log.txt: step "), HasSubstr("\n  1. lower optim.lr")));
  std::filesystem::remove(folder_ / "run/metrics.jsonl");
  std::filesystem::remove(folder_ / "run/log.txt");
  const Outcome empty = run_program({"doctor", folder_ / "run"});
  EXPECT_EQ(empty.code, 1) << "it is over";
  EXPECT_THAT(empty.out, testing::StartsWith("no_steps (stopped): the run is over and has not recorded a step.\n"));
}

}  // namespace
}  // namespace lockstep::tests
