// What any stage saved over any number of ranks, any other goes on from, with no conversion.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSaved = 2, kSteps = 4;

RunSpec run_of(const LayoutSpec& layout) {
  RunSpec spec;
  spec.model = tiny_specs()[1].spec;  // tied
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = kSteps, .global_batch = 16, .save_every = kSaved, .keep = 100, .seed = 4};
  spec.optimizer.clip = 0.05;
  spec.schedule.warmup = 2;
  spec.layout = layout;
  spec.run.threads = 1;
  return spec;
}

// Every logical tensor of the state, whole, put together from what the ranks hold.
using Whole = std::map<std::pair<std::string, std::string>, std::vector<double>>;

void put_together(Whole& whole, TrainingRun& run, std::mutex& mutex) {
  const std::lock_guard lock(mutex);
  for (const StateTensor& t : run.replica().state()) {
    auto& values = whole[{t.part, t.tensor.name}];
    values.resize(static_cast<std::size_t>(t.tensor.elements()));
    std::ranges::copy(to_doubles(t.live, run.stream()), values.begin() + t.begin);
  }
}

// Trains to the end, from the beginning and with checkpoints, or from a checkpoint and without.
Whole train_all(RunSpec spec, const fs::path& folder, const fs::path& from = {}) {
  if (!from.empty()) spec.train.save_every = 0, spec.train.save_last = false;
  Whole whole;
  std::mutex mutex;
  run_ranks(static_cast<int>(spec.layout.dp), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
    Progress progress = beginning(run);
    if (from.empty())
      run.init_weights();
    else
      progress = resume(run, open_checkpoint(from), [](const std::string&) {});
    Watcher nobody;
    train(run, progress, nobody);
    put_together(whole, run, mutex);
  });
  return whole;
}

double distance(const Whole& a, const Whole& b) {
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

std::vector<LayoutSpec> layouts() {
  std::vector<LayoutSpec> all;
  for (const int zero : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 3, 5, 8})
      all.push_back({.dp = ranks, .micro = 2, .zero = zero, .uneven = Switch::on});
  all.push_back({.dp = 8, .micro = 2, .zero = 3, .shard = 4});
  return all;
}

bool same_sums(const LayoutSpec& a, const LayoutSpec& b) {
  return a.dp == b.dp && (a.dp == 1 || a.grad_sync == b.grad_sync);
}

TEST(ZeroResume, EveryStageAndCountGoesOnFromEveryOther) {
  int equal = 0, close = 0;
  for (const LayoutSpec& from : layouts()) {
    const TemporaryFolder folder;
    const Whole stayed = train_all(run_of(from), folder.path());
    const fs::path saved = folder.path() / step_folder_name(kSaved);
    // Every rank has written, but those of a second copy only what the first left them.
    EXPECT_EQ(std::ssize(open_checkpoint(saved).manifest().files), from.dp) << to_text(from);
    for (const LayoutSpec& to : layouts()) {
      const TemporaryFolder unused;
      const Whole went_on = train_all(run_of(to), unused.path(), saved);
      const std::string what = to_text(from) + " to " + to_text(to);
      if (same_sums(from, to)) {
        EXPECT_TRUE(went_on == stayed) << what;
        ++equal;
      } else {
        EXPECT_LE(distance(stayed, went_on), 1e-6) << what;
        ++close;
      }
    }
  }
  EXPECT_EQ(equal + close, 21 * 21);
  EXPECT_GE(equal, 16 + 4 * 2 * 4);
}

}  // namespace
}  // namespace lockstep::tests
