// Records of a healthy run, written by hand, for tests of the doctor's rules.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "telemetry/doctor/doctor.h"

namespace lockstep::tests {

inline constexpr double kReadAt = 1.7e9;

// A healthy run of `ranks` ranks along dp, whose steps take a second, nine tenths of it computing.
inline RunRecords healthy_records(int ranks, int steps = 120) {
  RunRecords run;
  run.folder = "runs/example";
  run.read_at = kReadAt;
  run.running = true;
  run.plan.axes = {{"dp", ranks}};
  run.plan.steps = 1000;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.02);
  for (int i = 1; i <= steps; ++i) {
    StepPoint point{.step = i,
                    .loss = 3 + 2 * std::exp(-0.02 * i) + noise(random),
                    .grad_norm = 1 + noise(random),
                    .lr = 1e-3,
                    .seconds = 1,
                    .tokens_per_s = 1e4,
                    .mfu = 0.45,
                    .time = kReadAt - steps + i};
    point.slowest_rank = 0;
    point.mean[static_cast<std::size_t>(TimeUse::compute)] = 0.9F;
    point.mean[static_cast<std::size_t>(TimeUse::wait_dp)] = 0.1F;
    run.steps.push_back(point);
    for (int rank = 0; rank < ranks; ++rank) {
      RankPoint own{.step = i, .seconds = 1};
      own.uses[static_cast<std::size_t>(TimeUse::compute)] = 0.9F;
      own.uses[static_cast<std::size_t>(TimeUse::wait_dp)] = 0.1F;
      run.ranks[rank].steps.push_back(own);
    }
  }
  run.last = run.steps.back();
  run.step_lines = steps;
  for (int rank = 0; rank < ranks; ++rank)
    run.now[rank] = {.now = {.rank = rank,
                             .pid = 100 + rank,
                             .host = "a",
                             .step = steps + 1,
                             .doing = DoingKind::action,
                             .action = "forward(1, 0)",
                             .seconds = 0.1,
                             .time = kReadAt - 0.5,
                             .cpu = RankCpu{.ran = 100, .waited = 1},
                             .memory = RankMemory{.used = 1 << 30, .limit = std::int64_t{8} << 30}},
                     .process = ProcessState::running};
  return run;
}

inline std::vector<std::string> names_found(const RunRecords& run) {
  std::vector<std::string> all;
  for (const Finding& finding : diagnose(run)) {
    all.push_back(finding.name);
    EXPECT_FALSE(finding.summary.empty() || finding.evidence.empty() || finding.remedies.empty()) << finding.name;
  }
  return all;
}

inline void set_time(RunRecords& run, int rank, TimeUse use, float seconds) {
  for (RankPoint& point : run.ranks[rank].steps) {
    point.seconds += seconds - point.uses[static_cast<std::size_t>(use)];
    point.uses[static_cast<std::size_t>(use)] = seconds;
  }
}

}  // namespace lockstep::tests
