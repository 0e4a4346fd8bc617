// Where each rule of the doctor ends: a little below its limit it finds nothing, a little above it finds its trouble,
// and names the rank, the stage and the first remedy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "telemetry/healthy_records.h"

namespace lockstep::tests {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Without what is known of the cores, which excuses waits.
RunRecords plain_records(int ranks, int steps = 120) {
  RunRecords run = healthy_records(ranks, steps);
  for (auto& [rank, status] : run.now) status.now.cpu.reset();
  return run;
}

// Every step: so much of it for that, the rest computing.
void set_share(RunRecords& run, TimeUse use, float share) {
  for (StepPoint& point : run.steps) {
    point.mean = {};
    point.mean[static_cast<std::size_t>(TimeUse::compute)] = 1 - share;
    point.mean[static_cast<std::size_t>(use)] += share;
  }
}

void set_ranks(RunRecords& run, TimeUse use, float seconds) {
  for (auto& [rank, history] : run.ranks) set_time(run, rank, use, seconds);
}

Finding only_finding(const RunRecords& run) {
  const std::vector<Finding> found = diagnose(run);
  if (found.size() == 1) return found[0];
  ADD_FAILURE() << found.size() << " findings";
  return {};
}

TEST(DoctorLimits, OfSharesOfTheStep) {
  struct Limit {
    TimeUse use;
    float share;
    const char* name;
  };
  for (const Limit& limit : {Limit{TimeUse::data, 0.10F, "slow_data"}, Limit{TimeUse::save, 0.20F, "slow_saves"},
                             Limit{TimeUse::evaluate, 0.35F, "slow_evaluation"}}) {
    RunRecords run = plain_records(1);
    set_share(run, limit.use, 0.95F * limit.share);
    EXPECT_THAT(names_found(run), ElementsAre()) << limit.name;
    set_share(run, limit.use, 1.05F * limit.share);
    EXPECT_THAT(names_found(run), ElementsAre(limit.name));
  }
}

// Updates are the optimizer's business, unless their state is elsewhere.
TEST(DoctorLimits, OfUpdatesOfOffloadedState) {
  RunRecords run = plain_records(1);
  set_share(run, TimeUse::optimizer, 0.5F);
  EXPECT_THAT(names_found(run), ElementsAre());
  run.plan.offload = "none", run.plan.moved_bytes = 0;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.plan.offload = "disk", run.plan.moved_bytes = std::int64_t{3} << 30, run.plan.offload_share = 0.5;
  run.plan.global_batch = 8;
  const Finding found = only_finding(run);
  EXPECT_EQ(found.name, "offload_costs");
  EXPECT_THAT(found.summary, HasSubstr("50% of the time, with their state on a disk"));
  EXPECT_THAT(found.evidence.at(1), HasSubstr("a step moves 3.00 GiB, there and back: 6.00 GiB/s"));
  EXPECT_THAT(found.remedies,
              ElementsAre(HasSubstr("train.global_batch=16"), HasSubstr("memory.offload_share below 0.5"),
                          HasSubstr("memory.offload_optimizer=none, and so gradients and parameters")));
  set_share(run, TimeUse::optimizer, 0.24F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_share(run, TimeUse::optimizer, 0.26F);
  EXPECT_THAT(names_found(run), ElementsAre("offload_costs"));
  run.plan.offload = "host";
  EXPECT_THAT(only_finding(run).summary, HasSubstr("on the host"));
}

TEST(DoctorLimits, OfStepsThatSetThingsUpAreNone) {
  RunRecords run = plain_records(1, 10);
  for (const std::size_t first : {0, 1}) run.steps[first].mean[static_cast<std::size_t>(TimeUse::data)] = 10;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.steps[2].mean[static_cast<std::size_t>(TimeUse::data)] = 10;
  EXPECT_THAT(names_found(run), ElementsAre("slow_data"));
}

TEST(DoctorLimits, OfCoresAndGpus) {
  RunRecords run = plain_records(1);
  run.now[0].now.cpu = RankCpu{.ran = 81, .waited = 19};
  EXPECT_THAT(names_found(run), ElementsAre());
  run.now[0].now.cpu = RankCpu{.ran = 79, .waited = 21};
  EXPECT_THAT(names_found(run), ElementsAre("shared_core"));
  run.now[0].now.cpu = RankCpu{.ran = 0.4, .waited = 0.5};
  EXPECT_THAT(names_found(run), ElementsAre()) << "of less than a second";

  run = plain_records(4);
  run.plan.cores = 1, run.plan.host_cores = 4, run.plan.threads = 1, run.plan.ranks = 4;
  run.now[3].now.cpu = RankCpu{.ran = 50, .waited = 50};
  EXPECT_THAT(only_finding(run).remedies.at(0), HasSubstr("end other programs"))
      << "each process has a core of its own";
  run.plan.host_cores = 2;
  EXPECT_THAT(only_finding(run).remedies.at(0), HasSubstr("4 ranks of 1 thread share the 2 cores of a: use fewer"));
  for (auto& [rank, status] : run.now) status.now.pid = 100;
  EXPECT_THAT(only_finding(run).remedies.at(0), HasSubstr("4 ranks of 1 thread share 1 core: use fewer"));

  run = plain_records(1);  // 118.5 s after its first step
  run.now[0].now.gpu = RankGpu{.throttled = {}, .throttled_seconds = 5.5};
  EXPECT_THAT(names_found(run), ElementsAre()) << "4.6% of the time";
  run.now[0].now.gpu->throttled_seconds = 6.5;
  EXPECT_THAT(names_found(run), ElementsAre("throttled_gpu"));
  run = plain_records(1, 20);
  run.now[0].now.gpu = RankGpu{.throttled = {}, .throttled_seconds = 4.5};
  EXPECT_THAT(names_found(run), ElementsAre()) << "a quarter of the time, but a few seconds";
  run.now[0].now.gpu->throttled_seconds = 5.5;
  EXPECT_THAT(names_found(run), ElementsAre("throttled_gpu"));
}

TEST(DoctorLimits, OfMicroBatches) {
  const auto found = [](const char* device, std::int64_t seq, double mfu) {
    RunRecords run = plain_records(1);
    run.plan.device = device;
    run.plan.micro = 8, run.plan.micro_batch = 1, run.plan.seq = seq;
    for (StepPoint& point : run.steps) point.mfu = mfu;
    return names_found(run);
  };
  EXPECT_THAT(found("cpu", 15, 0.29), ElementsAre("small_micro_batches"));
  EXPECT_THAT(found("cpu", 16, 0.29), ElementsAre());
  EXPECT_THAT(found("cpu", 15, 0.31), ElementsAre());
  EXPECT_THAT(found("cuda", 1023, 0.29), ElementsAre("small_micro_batches"));
  EXPECT_THAT(found("cuda", 1024, 0.29), ElementsAre());
}

TEST(DoctorLimits, OfLinks) {
  RunRecords run = plain_records(2);
  set_ranks(run, TimeUse::wait_dp, 0.24F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_ranks(run, TimeUse::wait_dp, 0.26F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_link"));
  run.plan.overlap = false;
  set_ranks(run, TimeUse::wait_dp, 0.09F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_ranks(run, TimeUse::wait_dp, 0.11F);
  EXPECT_EQ(only_finding(run).name, "overlap_off");
  EXPECT_THAT(only_finding(run).remedies.at(0), HasSubstr("layout.overlap=on"));
  // Ranks without a core let the others wait twice as long.
  run.plan.overlap = true;
  for (auto& [rank, status] : run.now) status.now.cpu = RankCpu{.ran = 90, .waited = 10};
  set_ranks(run, TimeUse::wait_dp, 0.44F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_ranks(run, TimeUse::wait_dp, 0.46F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_link"));
  // What the schedule makes ranks wait is not the link's.
  run = plain_records(2);
  run.plan.axes = {{"dp", 1}, {"pp", 2}};
  run.plan.ideal_bubble = 0.2;
  set_ranks(run, TimeUse::wait_pp, 0.44F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_ranks(run, TimeUse::wait_pp, 0.46F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_link"));
}

TEST(DoctorLimits, OfTheBubble) {
  struct Pipeline {
    double ideal = 0.2;
    float waited = 0.31F;
    std::int64_t micro = 4;
  };
  const auto records = [](const Pipeline& p) {
    RunRecords run = plain_records(2);
    run.plan.axes = {{"dp", 1}, {"pp", 2}};
    run.plan.micro = p.micro;
    run.plan.ideal_bubble = p.ideal;
    set_share(run, TimeUse::wait_pp, p.waited);
    return run;
  };
  const auto found = [&](const Pipeline& p) { return names_found(records(p)); };
  EXPECT_THAT(found({.waited = 0.31F}), ElementsAre("bubble"));
  EXPECT_THAT(found({.waited = 0.29F}), ElementsAre()) << "what was measured counts";
  EXPECT_THAT(found({.ideal = 0.5, .waited = 0.29F}), ElementsAre()) << "what was measured counts";
  EXPECT_THAT(found({.ideal = 0.15, .waited = 0.31F}), ElementsAre()) << "most of it is not the schedule's";
  EXPECT_THAT(found({.ideal = 0.16, .waited = 0.31F}), ElementsAre("bubble"));
  EXPECT_THAT(found({.micro = 7}), ElementsAre("bubble"));
  EXPECT_THAT(found({.micro = 8}), ElementsAre()) << "four micro-batches per stage are enough";
  // As recorded, where it is.
  RunRecords run = records({.waited = 0.1F});
  for (StepPoint& point : run.steps) point.bubble = 0.38F;
  EXPECT_EQ(only_finding(run).name, "bubble");
  EXPECT_EQ(only_finding(run).summary,
            "4 micro-batches are too few for 2 stages: the pipeline stands empty 38% of the time");
  EXPECT_THAT(only_finding(run).evidence,
              ElementsAre("measured: 38% of the step, median of 100 steps; the schedule alone makes it 20%"));
  EXPECT_THAT(only_finding(run).remedies.at(0), HasSubstr("layout.micro=8"));
  // Ranks that have no core let the others wait.
  for (auto& [rank, status] : run.now) status.now.cpu = RankCpu{.ran = 93, .waited = 7};
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(DoctorLimits, OfASlowRank) {
  RunRecords run = plain_records(4);
  set_time(run, 2, TimeUse::compute, 1.12F);
  EXPECT_THAT(names_found(run), ElementsAre()) << "1.24 times as long";
  set_time(run, 2, TimeUse::compute, 1.13F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_rank"));
  // Of two the slower one, whichever comes first.
  for (const int slower : {1, 2}) {
    set_time(run, slower, TimeUse::compute, 2.0F);
    set_time(run, 3 - slower, TimeUse::compute, 1.5F);
    EXPECT_THAT(only_finding(run).summary, HasSubstr(fmt::format("rank {} takes 2.2 times", slower)));
  }
  // Much longer than the others, but little of the step.
  set_ranks(run, TimeUse::compute, 0.2F);
  set_time(run, 2, TimeUse::compute, 0.29F);
  EXPECT_THAT(names_found(run), ElementsAre());
  set_time(run, 2, TimeUse::compute, 0.31F);
  EXPECT_THAT(names_found(run), ElementsAre("slow_rank"));
}

TEST(DoctorLimits, OfAStageWithMoreWork) {
  RunRecords run = plain_records(4);
  run.plan.axes = {{"dp", 1}, {"pp", 4}};
  run.plan.micro = 16;
  set_ranks(run, TimeUse::compute, 0.2F);
  set_time(run, 2, TimeUse::compute, 0.33F);
  EXPECT_THAT(names_found(run), ElementsAre()) << "0.0975 of the step more than the mean";
  set_time(run, 2, TimeUse::compute, 0.34F);
  EXPECT_EQ(only_finding(run).name, "imbalance");
  EXPECT_THAT(only_finding(run).summary, HasSubstr("stage 2 of 4"));
}

TEST(DoctorLimits, OfASpike) {
  RunRecords run = plain_records(1);
  for (StepPoint& point : run.steps) point.loss = 3;  // a deviation of 0.06, the least that is taken
  run.steps[80].loss = 3.47;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.steps[80].loss = 3.49;
  EXPECT_THAT(names_found(run), ElementsAre("loss_spike"));
}

TEST(DoctorLimits, OfALossThatRisesFromTheStart) {
  const auto found = [](const std::vector<double>& losses) {
    RunRecords run = plain_records(1, static_cast<int>(losses.size()));
    for (std::size_t i = 0; i < losses.size(); ++i) run.steps[i].loss = losses[i];
    return names_found(run);
  };
  const auto two_parts = [](std::size_t first, double before, std::size_t then, double after) {
    std::vector<double> losses(first, before);
    losses.insert(losses.end(), then, after);
    return losses;
  };
  EXPECT_THAT(found(two_parts(1, 4, 11, 5.9)), ElementsAre());
  EXPECT_THAT(found(two_parts(1, 4, 11, 6.1)), ElementsAre("diverged"));
  EXPECT_THAT(found(two_parts(1, 4, 10, 6.1)), ElementsAre()) << "too early to say";
  EXPECT_THAT(found(two_parts(1, 4, 2000, 6.1)), ElementsAre("diverged"));
  EXPECT_THAT(found(two_parts(1, 40, 60, 6.1)), ElementsAre()) << "it falls";
  // Slowly, so that no step jumps: from the first twenty on.
  std::vector<double> slowly;
  for (int i = 0; i < 100; ++i) slowly.push_back(4 * std::exp(i * std::log(1.27) / 80));
  EXPECT_THAT(found(slowly), ElementsAre());
  slowly.clear();
  for (int i = 0; i < 100; ++i) slowly.push_back(4 * std::exp(i * std::log(1.33) / 80));
  EXPECT_THAT(found(slowly), ElementsAre("diverged"));
  // A jump that stays, after steps that learned, is one finding.
  EXPECT_THAT(found(two_parts(30, 4, 30, 40)), ElementsAre("loss_spike"));
}

TEST(DoctorLimits, OfMemoryThatSwings) {
  constexpr double kMiB = 1 << 20;
  RunRecords run = plain_records(2);
  for (std::size_t i = 0; i < run.steps.size(); ++i) run.steps[i].bytes = 100 * kMiB;
  EXPECT_THAT(names_found(run), ElementsAre());
  // What the run's own buffers take rises and falls between steps.
  run.steps[60].bytes = 109 * kMiB;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.steps[60].bytes = 112 * kMiB;
  EXPECT_THAT(names_found(run), ElementsAre("memory_swings"));
  EXPECT_THAT(only_finding(run).summary, HasSubstr("between steps"));
  for (std::size_t i = 60; i < run.steps.size(); ++i) run.steps[i].bytes = 112 * kMiB;
  run.last = run.steps.back();
  EXPECT_THAT(names_found(run), ElementsAre()) << "it has risen once";
  // What the process takes, beside them: 100 MiB and a limit that is far.
  const auto process = [&](std::int64_t swing) {
    run.now[1].now.memory =
        RankMemory{.used = 200 << 20, .limit = std::int64_t{8} << 30, .held = 200 << 20, .swing = swing << 20};
    return names_found(run);
  };
  EXPECT_THAT(process(19), ElementsAre());
  EXPECT_THAT(process(21), ElementsAre("memory_swings"));
  EXPECT_THAT(only_finding(run).summary, HasSubstr("the process of rank 1 "));
  EXPECT_THAT(only_finding(run).evidence, Contains(HasSubstr("the run's own buffers do not")));
}

TEST(DoctorLimits, OfSilence) {
  for (const bool running : {true, false}) {
    RunRecords run = plain_records(3);
    run.running = running;
    for (const int rank : {0, 2}) {
      run.now[rank].process = ProcessState::unknown;
      run.now[rank].now.time = kReadAt - 9.5;
    }
    EXPECT_THAT(names_found(run), ElementsAre());
    for (const int rank : {0, 2}) run.now[rank].now.time = kReadAt - 10.5;
    EXPECT_EQ(only_finding(run).name, running ? "hang" : "killed_rank");
    EXPECT_THAT(only_finding(run).summary, testing::StartsWith("ranks 0, 2 "));
  }
}

TEST(DoctorLimits, OfARankThatHoldsTheOthers) {
  RunRecords run = plain_records(3);
  for (StepPoint& point : run.steps) point.seconds = 4;
  for (auto& [rank, status] : run.now) {
    status.now.doing = DoingKind::call;
    status.now.call = 41;
    status.now.seconds = 19;
  }
  EXPECT_THAT(names_found(run), ElementsAre()) << "less than five steps";
  for (auto& [rank, status] : run.now) status.now.seconds = 21;
  // All are in calls: who is in an earlier one holds them, and rather who is in an earlier step.
  run.now[1].now.call = 40;
  EXPECT_THAT(only_finding(run).summary, HasSubstr("rank 1 has been"));
  run.now[2].now.step -= 1;
  run.now[2].now.call = 50;
  EXPECT_THAT(only_finding(run).summary, HasSubstr("rank 2 has been"));
}

TEST(DoctorLimits, OfADisk) {
  RunRecords run = plain_records(1);
  run.disk_free = 129 << 10;
  EXPECT_THAT(names_found(run), ElementsAre());
  run.disk_free = 127 << 10;
  EXPECT_THAT(names_found(run), ElementsAre("full_disk"));
  // What was refused, until it is written.
  run.disk_free = std::int64_t{1} << 40;
  const std::string lines = "metrics.jsonl: write failed: No space left on device",
                    checkpoint = "step 20: checkpoint not saved: No space left on device";
  run.log = {lines, checkpoint};
  EXPECT_THAT(only_finding(run).evidence, Contains("log.txt: " + checkpoint));
  run.log.push_back("step 40: checkpoint saved");
  EXPECT_THAT(only_finding(run).evidence, Contains("log.txt: " + lines));
  run.log.push_back("metrics.jsonl is written again");
  EXPECT_THAT(names_found(run), ElementsAre());
}

TEST(DoctorLimits, PutWhatCostsMoreFirst) {
  for (const bool saves : {true, false}) {
    RunRecords run = plain_records(1);
    set_share(run, TimeUse::data, saves ? 0.3F : 0.5F);
    for (StepPoint& point : run.steps) {
      point.mean[static_cast<std::size_t>(TimeUse::compute)] = 0.2F;
      point.mean[static_cast<std::size_t>(TimeUse::save)] = saves ? 0.5F : 0.3F;
    }
    EXPECT_THAT(names_found(run),
                saves ? ElementsAre("slow_saves", "slow_data") : ElementsAre("slow_data", "slow_saves"));
  }
}

}  // namespace
}  // namespace lockstep::tests
