#include "plan/sync_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/integers.h"
#include "comm/threads/run_ranks.h"
#include "plan/compared_trial.h"
#include "train/loop.h"
#include "train/pinning.h"
#include "train/resume.h"

namespace lockstep {

namespace {

class Stopper final : public Watcher {
 public:
  explicit Stopper(const std::function<bool()>& wanted) : wanted_(wanted) {}
  bool wants_stop() override { return wanted_ && wanted_(); }
  void stepped(const StepRecord& record) override { loss_ = record.loss; }
  double loss() const { return loss_; }

 private:
  const std::function<bool()>& wanted_;
  double loss_ = 0;
};

// After all of the run's steps. Nothing: it was stopped.
std::optional<double> loss_of(const RunSpec& run, const RunData& data, const std::function<bool()>& wants_stop) {
  std::optional<double> loss;
  const auto body = [&](std::unique_ptr<Communicator> ranks) {
    if (run.run.pin) take_share_of_cores(ranks->rank(), ranks->size());
    TrainingRun training(run, Device::cpu, "", {.ranks = ranks.get(), .data = &data});
    training.init_weights();
    Stopper watcher(wants_stop);
    Progress progress = beginning(training);
    if (train(training, progress, watcher) != Ending::finished) return;
    const double found = data.has_evaluation() ? training.evaluate().loss : watcher.loss();
    if (ranks->rank() == 0) loss = found;
  };
  // In a thread of its own, as the one that calls is rank 0 and would keep to its share of the cores.
  std::async(std::launch::async, [&] {
    run_ranks(static_cast<int>(run.layout.ranks()), body, {.deadline_seconds = run.run.deadline});
  }).get();
  return loss;
}

class Trials {
 public:
  Trials(const std::vector<SyncTechnique>& techniques, const SyncComparisonOptions& options)
      : techniques_(techniques), options_(options), data_(techniques.front().run) {
    trials_.reserve(techniques.size());
    for (const SyncTechnique& one : techniques) {
      const ComparedTrial& trial = trials_.emplace_back(one.run, data_, options.costs);
      if (const auto why = trial.why_it_does_not_fit())
        throw UserError(ExitCode::does_not_fit, fmt::format("{}: {}", one.name, *why),
                        "use fewer ranks, a smaller model or a shorter data.seq");
    }
  }

  SyncComparison run() {
    SyncComparison comparison;
    Calibrator calibrator(data_, usable_cores(), options_.costs.wants_stop);
    bool stopped = false;
    for (ComparedTrial& trial : trials_)
      if (options_.costs.forecasts && !stopped) stopped = !trial.forecast(calibrator, usable_cores());
    const std::int64_t rounds = std::min(options_.costs.rounds, options_.costs.steps);
    for (std::int64_t round = 0; round < rounds && !stopped; ++round)
      for (std::size_t i = 0; i < trials_.size() && !stopped; ++i) {
        begins(i);
        const SyncSpec& sync = techniques_[i].run.sync;
        const std::int64_t every = sync.takes_local_steps() ? sync.every : 1;
        stopped = !trials_[i].round(round_up(ceil_div(options_.costs.steps, rounds), every));
      }
    for (std::size_t i = 0; i < trials_.size(); ++i)
      if (trials_[i].has_round()) comparison.all.push_back({.technique = techniques_[i], .ran = trials_[i].result()});
    for (std::size_t i = 0; i < comparison.all.size() && options_.losses && !stopped; ++i) {
      begins(i);
      comparison.all[i].loss = loss_of(techniques_[i].run, data_, options_.costs.wants_stop);
      stopped = !comparison.all[i].loss;
    }
    comparison.stopped = stopped;
    return comparison;
  }

 private:
  void begins(std::size_t i) const {
    if (options_.begins) options_.begins(techniques_[i].name);
  }

  const std::vector<SyncTechnique>& techniques_;
  const SyncComparisonOptions& options_;
  RunData data_;
  std::vector<ComparedTrial> trials_;
};

}  // namespace

bool SyncComparison::ok() const {
  return std::ranges::all_of(all, [](const ComparedSync& one) { return one.ran.ok(); });
}

double SyncComparison::relative(const ComparedSync& of) const {
  return of.ran.tokens_a_second() / all.front().ran.tokens_a_second();
}

double SyncComparison::bytes_of_full(const ComparedSync& of) const {
  return of.ran.sent_per_step() / all.front().ran.sent_per_step();
}

std::optional<double> SyncComparison::more_loss(const ComparedSync& of) const {
  if (!of.loss || !all.front().loss) return std::nullopt;
  return *of.loss / *all.front().loss - 1;
}

SyncComparison compare_sync(const std::vector<SyncTechnique>& techniques, const SyncComparisonOptions& options) {
  return Trials(techniques, options).run();
}

}  // namespace lockstep
