#include "train/loop.h"

#include <chrono>

#include "optim/learning_rate.h"
#include "spec/model_flops.h"
#include "telemetry/z_score.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

BytesByTag bytes_of(const Ledger& ledger, std::int64_t (Ledger::*which)(Tag) const) {
  BytesByTag bytes;
  for (int t = 0; t < kTags; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (ledger.peak(tag) > 0) bytes.emplace_back(name_of(tag), (ledger.*which)(tag));
  }
  return bytes;
}

StepRecord record_of(TrainingRun& run, const Progress& progress, const Replica::Result& result, double rate,
                     double seconds) {
  const TrainSpec& t = run.spec().train;
  return {.step = progress.step,
          .loss = result.loss,
          .grad_norm = result.norm,
          .lr = rate,
          .seconds = seconds,
          .tokens_per_s = static_cast<double>(run.tokens_a_step()) / seconds,
          .model_flops_per_s = model_flops(run.spec().model, t.global_batch, run.spec().data.seq) / seconds,
          .updated = result.updated,
          .bytes = bytes_of(run.ledger(), &Ledger::current),
          .peak_bytes = bytes_of(run.ledger(), &Ledger::peak),
          .time = seconds_since_1970()};
}

bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

Ending train(TrainingRun& run, Progress& progress, Watcher& watcher, const LoopOptions& options) {
  const TrainSpec& t = run.spec().train;
  // A run that goes on from its own folder has its first state there already; from another's, it has not.
  std::int64_t saved = run.has_saved(progress.step) ? progress.step : -1;
  const auto save = [&] {
    if (saved == progress.step) return;
    run.save(progress);
    saved = progress.step;
    watcher.saved(saved);
  };

  ZScore usual;
  Ending ending = Ending::finished;
  while (progress.step < t.steps) {
    const auto start = Clock::now();
    const double rate = learning_rate(run.spec().schedule, run.spec().optimizer.learning_rate, progress.step, t.steps);
    run.replica().set_learning_rate(rate);
    const Replica::Result result = run.step(progress);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();

    ++progress.step;
    progress.samples += t.global_batch;
    progress.updates = run.replica().steps_done();
    StepRecord record = record_of(run, progress, result, rate, seconds);
    record.loss_z = usual.add(result.loss);
    if (options.peak_flops) record.mfu = record.model_flops_per_s / *options.peak_flops;
    watcher.stepped(record);

    if (!result.updated) {
      watcher.note(fmt::format("step {}: a value is not finite, nothing was updated; the first was {}", progress.step,
                               run.find_bad_value().value_or("the norm itself: every gradient is finite")));
      if (t.bad_values == BadValues::stop) {
        ending = Ending::bad_values;
        break;
      }
    }
    if (run.data().has_evaluation() &&
        (due(t.eval_every, progress.step) || (t.eval_every > 0 && progress.step == t.steps)))
      watcher.evaluated({progress.step, run.evaluate(), seconds_since_1970()});
    if (due(t.save_every, progress.step)) save();
    if (progress.step < t.steps && watcher.wants_stop()) {
      ending = Ending::stopped;
      break;
    }
  }
  save();
  run.wait_for_save();
  return ending;
}

}  // namespace lockstep
