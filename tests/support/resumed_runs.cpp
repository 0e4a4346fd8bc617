#include "support/resumed_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {

RunSpec resumed_run(const ModelSpec& model, const LayoutSpec& layout) {
  RunSpec spec;
  spec.model = model;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kAllSteps, .global_batch = 16, .save_every = kSavedStep, .keep = 100, .seed = 4};
  spec.optimizer.clip = 0.05;
  spec.schedule.warmup = 2;
  spec.layout = layout;
  spec.run.threads = 1;
  return spec;
}

namespace {

void put_together(TrainedState& whole, TrainingRun& run, std::mutex& mutex) {
  const std::lock_guard lock(mutex);
  for (const StateTensor& t : run.replica().state()) {
    auto& values = whole[{t.part, t.tensor.name}];
    values.resize(static_cast<std::size_t>(t.tensor.elements()));
    const std::vector<double> here = to_doubles(t.live, run.stream());
    for (std::int64_t at = 0; at < std::ssize(here); at += t.range.row)
      std::copy_n(here.begin() + at, t.range.row, values.begin() + t.range.at(at));
  }
}

}  // namespace

TrainedState train_all(RunSpec spec, const std::filesystem::path& folder, const std::filesystem::path& from) {
  if (!from.empty()) spec.train.save_every = 0, spec.train.save_last = false;
  TrainedState whole;
  std::mutex mutex;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
    if (from.empty()) run.init_weights();
    Progress progress = from.empty() ? beginning(run) : resume(run, open_checkpoint(from), [](const std::string&) {});
    Watcher nobody;
    train(run, progress, nobody);
    put_together(whole, run, mutex);
  });
  return whole;
}

void resave(const RunSpec& spec, const std::filesystem::path& folder, const std::filesystem::path& from) {
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
    const Progress progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    run.save(progress);
    run.wait_for_save();
  });
}

double distance(const TrainedState& a, const TrainedState& b) {
  double worst = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [key, values] : a) {
    double error = 0, size = 0;
    const auto& others = b.at(key);
    for (std::size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - others[i], 2);
      size += std::pow(values[i], 2);
    }
    if (key.first == "weight") worst = std::max(worst, std::sqrt(error / std::max(size, 1e-30)));
  }
  return worst;
}

void expect_each_goes_on_from_each(const std::string& name, const ModelSpec& model,
                                   const std::vector<LayoutSpec>& layouts) {
  const auto run_of = [&](const LayoutSpec& layout) {
    RunSpec run = resumed_run(model, layout);
    run.data.seq = 12;
    run.precision.compute = Precision::fp64;
    return run;
  };
  for (const LayoutSpec& from : layouts) {
    const TemporaryFolder folder;
    const TrainedState stayed = train_all(run_of(from), folder.path());
    const std::filesystem::path saved = folder.path() / step_folder_name(kSavedStep);
    for (const LayoutSpec& to : layouts) {
      const TemporaryFolder unused;
      const TrainedState went_on = train_all(run_of(to), unused.path(), saved);
      const std::string what = name + ": " + to_text(from) + " to " + to_text(to);
      if (from == to)
        EXPECT_TRUE(went_on == stayed) << what;
      else
        EXPECT_LE(distance(stayed, went_on), 1e-11) << what;
    }
  }
}

}  // namespace lockstep::tests
