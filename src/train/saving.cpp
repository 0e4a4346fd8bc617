#include "train/saving.h"

#include <algorithm>

#include "comm/rethrow.h"

namespace lockstep {

Saving::Saving(TrainingRun& run, Watcher& watcher, RunEvents& events, const Progress& progress)
    : run_(run),
      watcher_(watcher),
      events_(events),
      begun_(run.has_saved(progress.step) ? progress.step : -1),
      newest_(begun_),
      before_(begun_ >= 0 ? begun_ : run.newest_saved(progress.step)) {}

void Saving::save(const Progress& progress) {
  if (begun_ == progress.step) return;
  const double began = events_.now();
  run_.save(progress);
  events_.add({.kind = EventKind::save, .step = progress.step, .began = began, .seconds = events_.now() - began});
  // Without a snapshot a save that has failed was not begun: another try is another save.
  const bool failed = run_.retries_need_the_run() && run_.save_is_failing();
  if (!failed) {
    begun_ = progress.step;
    pause_ = 0;
  } else {
    const RetryPauses pauses;
    pause_ = pause_ == 0 ? pauses.first : std::min(2 * pause_, pauses.most);
    again_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause_));
  }
  watcher_.saving(progress.step);
  tell();
}

namespace {
// What the system said, without the path, which has the step in it.
std::string_view reason_in(std::string_view message) {
  const auto at = message.rfind(" failed: ");
  return at == std::string_view::npos ? message : message.substr(at);
}
}  // namespace

void Saving::tell() {
  constexpr std::chrono::seconds kAgain{60};  // a disk that stays full is not filled with messages about it
  if (const auto problem = run_.backup_problem()) {
    events_.add({.kind = EventKind::fault, .step = newest(), .text = "no backup: " + *problem});
    watcher_.note(
        fmt::format("no backup of a checkpoint in train.backup: {}; the run continues, and tries again with the "
                    "next checkpoint",
                    *problem));
  }
  for (const SaveEvent& event : run_.save_events()) {
    if (event.outcome == SaveOutcome::saved) {
      newest_ = event.step;
      told_.clear();
      events_.add({.kind = EventKind::saved, .step = event.step});
      watcher_.saved(event.step);
      continue;
    }
    const bool again = event.outcome == SaveOutcome::failed && reason_in(event.words) == told_;
    if (again && Clock::now() < told_at_ + kAgain) continue;
    events_.add({.kind = EventKind::fault, .step = event.step, .text = "checkpoint not saved: " + event.words});
    if (event.outcome == SaveOutcome::failed) {
      told_ = reason_in(event.words);
      told_at_ = Clock::now();
      watcher_.note(
          fmt::format("step {}: checkpoint not saved: {}; the run continues and tries again", event.step, event.words));
    } else {
      watcher_.note(fmt::format("step {}: checkpoint not saved: {}; older checkpoints stay as they are", event.step,
                                event.words));
    }
  }
}

bool Saving::wants_again() const {
  return run_.is_first_rank() && run_.retries_need_the_run() && pause_ > 0 && Clock::now() >= again_;
}

bool Saving::finish(const Progress& progress, bool unchanged) {
  const TrainSpec& t = run_.spec().train;
  const bool is_there = unchanged && newest_ >= 0;
  // Replicas that do not agree yet have no state to save: the run has failed between two synchronizations.
  const bool can_save = run_.agrees_after(progress.step);
  if (can_save && ((t.save_last && !is_there) || run_.any_rank(run_.save_is_failing()))) save(progress);
  const SaveResult result = run_.finish_save(progress, t.save_retry);
  tell();
  if (result.outcome != SaveOutcome::failed) return !can_save || result.outcome == SaveOutcome::saved;
  try {
    std::rethrow_exception(result.error);
  } catch (...) {
    rethrow_with([&](const char* what) {
      return fmt::format("{}; step {} could not be saved within train.save_retry = {} s, {}", what, progress.step,
                         t.save_retry,
                         newest() >= 0 ? fmt::format("the newest checkpoint is of step {}", newest())
                                       : std::string("and there is no checkpoint"));
    });
  }
}

}  // namespace lockstep
