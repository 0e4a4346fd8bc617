// The doctor's rules, fed with records written by hand: what cannot be provoked in seconds, and where each rule ends.
#include "telemetry/doctor/doctor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/healthy_records.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Doctor, FindsNothingInAHealthyRun) {
  for (const int ranks : {1, 2, 7, 1000}) EXPECT_THAT(names_found(healthy_records(ranks)), ElementsAre()) << ranks;
  EXPECT_EQ(healthy_text(healthy_records(2)), "healthy: step 120 of 1000, loss " +
                                                  fmt::format("{:.4f}", healthy_records(2).last.loss) +
                                                  ", 10,000 tokens/s, MFU 45.0%; time: compute 90%, wait_dp 10%");
  EXPECT_THAT(names_found(RunRecords{}), ElementsAre());
}

TEST(Doctor, NamesARankThatHangsInALivingProcessAndWhoWaits) {
  RunRecords run = healthy_records(3);
  for (auto& [rank, status] : run.now) status.now.seconds = 9;
  run.now[0].now.doing = run.now[2].now.doing = DoingKind::call;
  run.now[0].now.op = run.now[2].now.op = "all_reduce";
  run.now[0].now.group = run.now[2].now.group = "dp";
  run.now[0].now.call = run.now[2].now.call = 41;
  EXPECT_THAT(names_found(run), ElementsAre());  // a step may take that long
  for (auto& [rank, status] : run.now) status.now.seconds = 14;
  run.plan.device = "cuda";
  const std::vector<Finding> found = diagnose(run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "hang");
  EXPECT_EQ(found[0].summary, "the run hangs: rank 1 has been in forward(1, 0) of step 121 for 14 s");
  EXPECT_THAT(found[0].evidence, testing::Contains("rank 2 has waited 14.5 s in all_reduce #41 of 'dp', in forward(1, "
                                                   "0) of step 121"));
  EXPECT_THAT(found[0].remedies.back(), HasSubstr("NCCL_DEBUG=INFO"));
  // Steps that take long make waiting long.
  for (StepPoint& point : run.steps) point.seconds = 60;
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(Doctor, NamesARankOfAnotherHostThatIsSilent) {
  RunRecords run = healthy_records(2);
  run.now[1].process = ProcessState::unknown;
  run.now[1].now.time = kReadAt - 9;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.now[1].now.time = kReadAt - 30;
  EXPECT_THAT(names_found(run), ElementsAre("hang"));
  EXPECT_THAT(diagnose(run).at(0).summary, HasSubstr("rank 1 of 2 has said nothing for 30 s"));
  run.running = false;
  EXPECT_THAT(names_found(run), ElementsAre("killed_rank"));
}

TEST(Doctor, TakesFromTheLogWhyARunIsOverAndNotWhyAnEarlierAttemptWas) {
  RunRecords run = healthy_records(2);
  run.running = false;
  for (auto& [rank, status] : run.now) {
    status.now.doing = DoingKind::ended;
    status.process = ProcessState::gone;
  }
  EXPECT_THAT(names_found(run), ElementsAre());
  run.log = {"the run has failed: #3 of 'dp', all_reduce of 8 fp32 (sum, canonical): rank 1 has not come within 30 s"};
  EXPECT_THAT(names_found(run), ElementsAre("hang"));
  run.log = {"the run has failed: rank 1 (process 7) is gone; last in all_reduce #452 of 'world', done"};
  EXPECT_THAT(names_found(run), ElementsAre("killed_rank"));
  run.log = {"the run has failed: data.tokens: token 3 has id 99"};
  EXPECT_THAT(names_found(run), ElementsAre("failed"));
  run.log.push_back("resuming from runs/example/checkpoints/step-00000100");
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(Doctor, SaysThatAUserEndedTheRunAndLeavesMemoryAlone) {
  RunRecords run = healthy_records(2);
  run.running = false;
  for (auto& [rank, status] : run.now) status.process = ProcessState::gone;
  EXPECT_THAT(names_found(run), ElementsAre("killed_rank"));
  run.log = {"a second signal: ended at once, nothing more was saved"};
  ASSERT_THAT(names_found(run), ElementsAre("interrupted"));
  const Finding found = diagnose(run).at(0);
  EXPECT_THAT(found.summary, HasSubstr("Ctrl-C"));
  EXPECT_THAT(found.remedies,
              ElementsAre(HasSubstr("`lockstep train runs/example/run.toml --out runs/example --resume` "
                                    "begins again at step 0")));
  run.log.push_back("resuming from runs/example/checkpoints/step-00000100");
  EXPECT_THAT(names_found(run), ElementsAre("killed_rank")) << "that was an earlier attempt";
}

TEST(Doctor, SpellsOutHowToContinue) {
  RunRecords run = healthy_records(2);
  run.running = false;
  for (auto& [rank, status] : run.now) status.process = ProcessState::gone;
  const auto last_remedy = [&] { return diagnose(run).at(0).remedies.back(); };
  EXPECT_EQ(last_remedy(),
            "`lockstep train runs/example/run.toml --out runs/example --resume` begins again at step 0: no checkpoint "
            "was saved");
  run.checkpoints = {{50, "step-00000050"}, {100, "step-00000100"}};
  EXPECT_EQ(last_remedy(), "`lockstep train --resume runs/example` continues from the newest checkpoint, of step 100");
  run.folder = "my runs/it's";
  EXPECT_THAT(last_remedy(), HasSubstr(R"(`lockstep train --resume 'my runs/it'\''s'`)"));
  // After a bad value: from before it. What was saved in that very step has the weights that made it.
  run = healthy_records(1);
  run.plan.lr = 0.3;
  run.steps[99].updated = run.last.updated = false;
  run.first_not_updated = 100;
  run.checkpoints = {{50, "step-00000050"}, {100, "step-00000100"}};
  EXPECT_EQ(last_remedy(),
            "then `lockstep train --resume runs/example/checkpoints/step-00000050 --set optim.lr=0.1`: the newest "
            "checkpoint before it; train.bad_values=skip leaves such steps out");
  run.checkpoints.erase(50);
  EXPECT_EQ(last_remedy(),
            "then `lockstep train runs/example/run.toml --out runs/example --overwrite --set optim.lr=0.1`: no "
            "checkpoint is from before it; train.bad_values=skip leaves such steps out");
  // Of a run that skipped it and went on.
  run.checkpoints = {{50, "step-00000050"}, {110, "step-00000110"}};
  run.last.updated = true;
  EXPECT_THAT(last_remedy(), HasSubstr("step-00000110"));
  // No remedy leaves a word to fill in that the records know.
  run = healthy_records(2);
  run.disk_free = 0;
  EXPECT_THAT(last_remedy(), HasSubstr("`lockstep train runs/example/run.toml --out FOLDER` begins there"));
  run.checkpoints = {{50, "step-00000050"}};
  EXPECT_THAT(last_remedy(), HasSubstr("`lockstep train --resume runs/example --out FOLDER` continues there"));
}

TEST(Doctor, NamesDamagedRecordsAndWhereTheyAre) {
  RunRecords run = healthy_records(2);
  run.bad_lines = 3, run.bad_files = 1;
  run.bad_by_file = {{"metrics.jsonl", 1}, {"ranks/rank-00001.jsonl", 2}, {"ranks/rank-00001.now", 1}};
  ASSERT_THAT(names_found(run), ElementsAre("damaged_records"));
  const Finding found = diagnose(run).at(0);
  EXPECT_EQ(found.summary, "3 lines and 1 file of the run's records are damaged, and were left out");
  EXPECT_THAT(found.evidence, ElementsAre("metrics.jsonl: 1 line is no record",
                                          "ranks/rank-00001.jsonl: 2 lines are "
                                          "no records",
                                          "ranks/rank-00001.now: 1 line is no record"));
  run.bad_lines = 1, run.bad_files = 0;
  for (int rank = 0; rank < 20; ++rank) run.bad_by_file[fmt::format("ranks/rank-{:05}.jsonl", rank)] = 1;
  EXPECT_EQ(diagnose(run).at(0).summary, "1 line of the run's records is damaged, and was left out");
  EXPECT_THAT(diagnose(run).at(0).evidence.back(), HasSubstr("more files"));
}

TEST(Doctor, FindsARunThatIsOverWithoutAStep) {
  RunRecords run = healthy_records(2);
  run.steps.clear(), run.ranks.clear(), run.last = {};
  EXPECT_THAT(names_found(run), ElementsAre()) << "it is under way";
  run.running = false;
  EXPECT_THAT(names_found(run), ElementsAre()) << "its ranks are";
  for (auto& [rank, status] : run.now) {
    status.now.doing = DoingKind::ended;
    status.process = ProcessState::gone;
  }
  EXPECT_THAT(names_found(run), ElementsAre("no_steps"));
  run.now.clear();
  EXPECT_THAT(names_found(run), ElementsAre("no_steps"));
  run.log = {"the run has failed: data.tokens: token 3 has id 99"};
  EXPECT_THAT(names_found(run), ElementsAre("failed")) << "which says why";
}

TEST(Doctor, NamesASlowRankAmongItsPeersOnly) {
  RunRecords run = healthy_records(4);
  set_time(run, 2, TimeUse::compute, 1.1F);
  EXPECT_THAT(names_found(run), ElementsAre());  // 1.22 times as long
  set_time(run, 2, TimeUse::compute, 1.4F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_rank"));
  EXPECT_THAT(diagnose(run).at(0).summary, HasSubstr("rank 2 takes 1.6 times as long"));
  // The core of that rank is another's half of the time: that is what makes it slow.
  run.now[2].now.cpu = RankCpu{.ran = 50, .waited = 50};
  EXPECT_THAT(names_found(run), ElementsAre("shared_core"));
  // Each of these is a stage of its own, with work of its own.
  run = healthy_records(4);
  run.plan.axes = {{"dp", 1}, {"pp", 4}};
  run.plan.micro = 16;
  set_time(run, 2, TimeUse::compute, 1.4F);
  EXPECT_THAT(names_found(run), ElementsAre("imbalance"));
}

TEST(Doctor, TellsASlowLinkFromARankThatOthersWaitFor) {
  RunRecords run = healthy_records(2);
  for (int rank = 0; rank < 2; ++rank) set_time(run, rank, TimeUse::wait_dp, 0.5F);
  run.ranks[0].sent["dp"] = {.calls = 4, .bytes = 1 << 20};
  run.plan.link_bytes_per_s = 1 << 30;
  EXPECT_THAT(names_found(run), ElementsAre("slow_link"));
  EXPECT_THAT(
      diagnose(run).at(0).evidence,
      ElementsAre("rank 0 sends 1.00 MiB in 4 calls per step along dp and waits 500 ms of 1 s: 2.00 MiB/s at most",
                  "`bench comm` measured 1.00 GiB/s here"));
  run.plan.overlap = false;
  EXPECT_THAT(names_found(run), ElementsAre("overlap_off"));
  set_time(run, 1, TimeUse::wait_dp, 0.01F);  // who waits for nobody has a good link
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(Doctor, NamesAThrottledGpu) {
  RunRecords run = healthy_records(2);
  run.now[1].now.gpu =
      RankGpu{.sm_mhz = 900, .temperature = 88, .throttled = {"too hot (hardware)"}, .throttled_seconds = 3};
  EXPECT_THAT(names_found(run), ElementsAre());
  run.now[1].now.gpu->throttled_seconds = 30;
  EXPECT_THAT(names_found(run), ElementsAre("throttled_gpu"));
  EXPECT_THAT(diagnose(run).at(0).evidence[0], HasSubstr("now 900 MHz at 88 degrees Celsius, too hot (hardware)"));
}

TEST(Doctor, NamesASpikeThatPassesButNoNoise) {
  RunRecords run = healthy_records(1);
  run.steps[80].loss += 0.3;  // four times the usual noise, below a tenth of the loss
  EXPECT_THAT(names_found(run), ElementsAre());
  run.steps[80].loss += 3;
  run.steps[80].grad_norm = 50;
  EXPECT_THAT(names_found(run), ElementsAre("loss_spike"));
  EXPECT_THAT(diagnose(run).at(0).summary, AllOf(HasSubstr("at step 81"), HasSubstr("was back after 1 step")));
  // A loss that rises slowly, as at the start of a new text, is none.
  run = healthy_records(1);
  for (std::size_t i = 60; i < run.steps.size(); ++i) run.steps[i].loss += 0.005 * static_cast<double>(i - 60);
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(Doctor, PutsWhatStoppedTheRunFirstAndThenWhatCostsMost) {
  RunRecords run = healthy_records(2);
  for (int rank = 0; rank < 2; ++rank) set_time(run, rank, TimeUse::wait_dp, 0.4F);
  for (StepPoint& point : run.steps) point.mean[static_cast<std::size_t>(TimeUse::data)] = 2;
  run.now[0].now.memory = RankMemory{.used = 99, .limit = 100};
  run.detail.peak_bytes = {{"activation", 80}, {"parameter", 20}};
  run.disk_free = 0;
  run.disk_bytes = 1 << 20;
  run.first_not_updated = 7;
  EXPECT_THAT(names_found(run), ElementsAre("full_disk", "not_finite", "slow_data", "memory_peak"));
}

TEST(Doctor, NamesWhatMadeThePeakOfMemory) {
  RunRecords run = healthy_records(1);
  run.now[0].now.memory = RankMemory{.used = 84, .limit = 100};
  run.detail.peak_bytes = {{"gathered", 80}, {"parameter", 20}};
  EXPECT_THAT(names_found(run), ElementsAre());
  run.now[0].now.memory->used = 86;
  EXPECT_THAT(names_found(run), ElementsAre("memory_peak"));
  EXPECT_THAT(diagnose(run).at(0).remedies[0], HasSubstr("memory.gathered"));
  run.detail.peak_bytes = {{"optimizer", 80}};
  EXPECT_THAT(diagnose(run).at(0).remedies[0], HasSubstr("layout.zero"));
}

}  // namespace
}  // namespace lockstep::tests
