// lockstep doctor on what makes a run slow, provoked for each cause by a run that has it, and on healthy runs, of which
// it finds nothing.
//
// Runs are real. A slow link and slow data are simulated inside the training: messages pass a communicator that delays
// them, and the batch is held back. Times of a machine that others use too are those of shared cores, which is what the
// doctor then says: such a trial is repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "spec/run/run_toml.h"
#include "support/diagnosis.h"
#include "support/program.h"
#include "telemetry/metrics_file.h"
#include "telemetry/rank_records.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Provoked {
  std::string layout;
  std::optional<std::pair<double, double>> link = {};  // seconds, bytes per second
  std::chrono::milliseconds data = 0ms;                // that reading a batch takes longer
};

RunSpec provoked_spec(const Provoked& provoked) {
  RunSpec spec;
  spec.model = preset("llama-1m").value();
  spec.data.synthetic = SyntheticSpec{.vocabulary = 256, .order = 1};
  spec.data.seq = 64;
  spec.train.global_batch = 8;
  spec.train.steps = 10;
  spec.train.save_last = false;
  spec.layout = parse_layout(provoked.layout);
  spec.run.threads = 1;
  return spec;
}

// Trains ten steps with ranks as threads and leaves the records of a run.
void train_provoked(const std::filesystem::path& out, const Provoked& provoked) {
  const RunSpec spec = provoked_spec(provoked);
  std::ofstream(out / "run.toml") << to_toml(spec);
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> comm) {
    const auto [latency, rate] = provoked.link.value_or(std::pair(0.0, 1e12));
    SimulatedLink link(latency, rate);
    const int rank = comm->rank(), size = comm->size();
    Delayed ranks(std::move(comm), link);
    TrainingRun run(spec, Device::cpu, "", {.ranks = size > 1 ? &ranks : nullptr});
    run.init_weights();
    RankRecords records(out, rank);
    std::optional<MetricsFile> metrics;
    if (rank == 0) metrics.emplace(out / "metrics.jsonl", 0);
    run.account()->take();
    for (std::int64_t step = 1; step <= spec.train.steps; ++step) {
      {
        const Spending reading(run.account(), TimeUse::data);
        std::this_thread::sleep_for(provoked.data);
        run.load_batch((step - 1) * spec.train.global_batch);
      }
      run.begin_loaded_step(1e-4);
      const Replica::Result result = run.finish_step();
      const TimesByUse times = run.account()->take();
      const TrainingRun::Told told = run.tell_ranks({}, times);
      const std::vector<SentByAxis> sent = run.take_sent();
      records.write(step, rank_json(step, times, sent));
      StepRecord record;
      record.step = step;
      record.loss = result.loss;
      record.grad_norm = result.norm;
      record.seconds = times.total();
      record.times = told.times;
      record.sent = sent;
      if (metrics) metrics->write(to_json_line(record));
    }
  });
}

Diagnosis diagnosis_after(const Provoked& provoked) {
  const TemporaryFolder folder;
  train_provoked(folder.path(), provoked);
  return diagnosis_of(folder.path());
}

void expect_named_first(const Diagnosis& found, const std::string& name, const std::vector<std::string>& texts) {
  EXPECT_EQ(found.code, 1) << found.text;
  ASSERT_FALSE(found.names.empty()) << found.text;
  EXPECT_EQ(found.names[0], name) << found.text;
  for (const std::string& text : texts) EXPECT_THAT(found.first, HasSubstr(text));
}

TEST(DoctorOfTime, NamesASlowLink) {
  expect_named_first(
      diagnosis_after({.layout = "dp=2", .link = std::pair(1e-3, 2e7)}), "slow_link",
      {"messages along dp are slow", "rank 0 sends 4.07 MiB in ", "train.global_batch", "lockstep bench comm"});
}

TEST(DoctorOfTime, NamesOverlapThatIsOff) {
  expect_named_first(diagnosis_after({.layout = "dp=2,overlap=off", .link = std::pair(1e-3, 4e7)}), "overlap_off",
                     {"layout.overlap is off", "layout.overlap=on"});
}

TEST(DoctorOfTime, NamesSlowData) {
  expect_named_first(diagnosis_after({.layout = "dp=1", .data = 200ms}), "slow_data",
                     {"reading the data takes ", "lockstep tokenize", "data.tokens"});
  expect_named_first(diagnosis_after({.layout = "dp=2", .data = 200ms}), "slow_data", {"reading the data takes "});
}

// Of whole runs of the program.
class DoctorOfTimeOfRuns : public ::testing::Test {
 protected:
  Diagnosis after(const std::string& layout, const std::string& model = "preset = \"llama-5m\"",
                  const std::vector<std::string>& launcher = undisturbed()) const {
    std::ofstream(folder_ / "run.toml") << "[model]\n"
                                        << model << R"(
[data]
seq = 64
[data.synthetic]
vocabulary = 256
order = 1
[train]
steps = 14
global_batch = 8
save_last = false
[optim]
warmup = 4
[run]
threads = 1
)";
    const Outcome outcome =
        Program({"train", folder_ / "run.toml", "--out", folder_ / "run", "--layout", layout, "--overwrite"}, "/",
                launcher)
            .wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return diagnosis_of(folder_ / "run");
  }
  TemporaryFolder folder_;
};

TEST_F(DoctorOfTimeOfRuns, NamesCoresThatRanksShare) {
  std::vector<std::string> on_one_core = undisturbed();
  on_one_core.insert(on_one_core.end(), {"taskset", "-c", "0"});
  expect_named_first(after("dp=2", "preset = \"llama-5m\"", on_one_core), "shared_core",
                     {"the cores are shared", "was ready to compute and had no core", "taskset", "run.threads"});
}

TEST_F(DoctorOfTimeOfRuns, NamesStagesOfUnequalWork) {
  expect_named_first(after("pp=2,micro=8,stages=7+1",
                           "family = \"llama\"\nvocabulary = 256\nlayers = 8\nwidth = 256\nheads = 4\nkv_heads = 4\n"
                           "ffn_width = 512\nmax_positions = 64"),
                     "imbalance", {"stage 0 of 2 has ", "layout.stages=cost"});
}

TEST_F(DoctorOfTimeOfRuns, NamesABubble) {
  expect_named_first(after("pp=2,micro=1"), "bubble", {"1 micro-batch is too few for 2 stages", "layout.micro=8"});
}

TEST_F(DoctorOfTimeOfRuns, FindsNothingInHealthyRunsOfFiveLayouts) {
  constexpr int kTrials = 6;
  for (const char* layout : {"dp=1", "dp=2", "dp=2,zero=2,micro=2", "pp=2,micro=8", "cp=2"}) {
    Diagnosis found;
    for (int trial = 0; trial < kTrials; ++trial) {
      found = after(layout);
      for (const std::string& name : found.names) EXPECT_EQ(name, "shared_core") << layout << found.text;
      if (found.names.empty()) break;
    }
    EXPECT_EQ(found.code, 0) << layout << found.text;
    EXPECT_THAT(found.text, AllOf(HasSubstr("\"healthy\": true"), HasSubstr("healthy: step 14 of 14, loss "),
                                  HasSubstr("time: compute ")));
  }
}

}  // namespace
}  // namespace lockstep::tests
