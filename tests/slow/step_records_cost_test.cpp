// What recording every step costs: steps with and without, in turn, in one process.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "comm/threads/run_ranks.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "support/paired_ratios.h"
#include "support/program.h"
#include "telemetry/heartbeat.h"
#include "telemetry/rank_records.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

constexpr int kCostPairs = 400;
constexpr int kCostRounds = 3;  // of as many pairs, all of which count: until noise lets the limit tell

double seconds_of_step(TrainingRun& run, std::int64_t number, RankRecords* records) {
  const auto begin = std::chrono::steady_clock::now();
  run.step(number * run.spec().train.global_batch, 1e-4);
  if (records) {
    const TimesByUse times = run.account()->take();
    run.tell_ranks({}, times);
    records->write(number + 1, rank_json(number + 1, times, run.take_sent()));
  } else {
    run.any_rank(false);  // what ranks exchange before a step without records
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Time with records over time without, of pairs of steps.
std::vector<double> ratios_of(const std::string& layout) {
  RunSpec spec;
  spec.model = preset("llama-5m").value();
  spec.data.synthetic = SyntheticSpec{.vocabulary = 256, .order = 1};
  spec.data.seq = 32;
  spec.train.global_batch = 4;
  spec.train.save_last = false;
  spec.layout = parse_layout(layout);
  spec.run.threads = 1;
  const TemporaryFolder folder;
  Heartbeat heartbeat(folder.path());
  std::vector<double> ratios;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> comm) {
    TrainingRun run(spec, Device::cpu, "", {.ranks = comm->size() > 1 ? comm.get() : nullptr});
    run.init_weights();
    run.note_in(heartbeat.add(comm->rank(), std::vector<std::string>(run.replica().actions().size(), "action")));
    RankRecords records(folder.path(), comm->rank());
    std::mt19937 random(5);  // the same on all ranks
    std::int64_t number = 0;
    for (int i = 0; i < 3; ++i) seconds_of_step(run, number++, &records);
    for (int pair = 0; pair < kCostPairs; ++pair) {
      const bool first = random() % 2 == 0;
      double with = 0, without = 0;
      for (const bool recorded : {first, !first}) {
        run.pause_account(!recorded);
        (recorded ? with : without) = seconds_of_step(run, number++, recorded ? &records : nullptr);
      }
      if (comm->rank() == 0) ratios.push_back(with / without);
    }
    run.pause_account(false);
  });
  return ratios;
}

void expect_cheap(const std::string& layout) {
  std::vector<double> ratios;
  PairedRatios cost{.median = 2, .limit = 2};
  for (int round = 0; round < kCostRounds && cost.limit >= 1.01; ++round) {
    const std::vector<double> more = ratios_of(layout);
    ratios.insert(ratios.end(), more.begin(), more.end());
    cost = paired_ratios(ratios);
  }
  fmt::print("{}: a recorded step takes {:+.2f} % (median of {} pairs), with 95 % confidence at most {:+.2f} %\n",
             layout, (cost.median - 1) * 100, ratios.size(), (cost.limit - 1) * 100);
  EXPECT_LT(cost.limit, 1.01) << layout;
}

TEST(StepRecordsCost, LessThanOnePercentOfTheStep) {
  for (const char* layout : {"dp=1", "dp=2", "pp=2,micro=4", "tp=2"}) expect_cheap(layout);
}

}  // namespace
}  // namespace lockstep::tests
