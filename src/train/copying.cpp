#include "train/copying.h"

#include <fmt/format.h>

#include "spec/run/run_toml.h"

namespace lockstep {

namespace {

std::int64_t every_of(const TrainingRun& run, const std::optional<CopyPlace>& place) {
  const std::int64_t told = run.spec().train.copy_every;
  return told == kCopyAuto && place ? place->every : told;
}

std::string every_text(std::int64_t every) { return every == 1 ? "every step" : fmt::format("every {} steps", every); }

}  // namespace

Copying::Copying(TrainingRun& run, Watcher& watcher, Progress& progress, const std::optional<CopyPlace>& place)
    : run_(run), watcher_(watcher), place_(place), pace_(every_of(run, place), progress.step) {
  const TrainSpec& train = run.spec().train;
  if (!place) {
    if (train.copy_every > 0)
      watcher.note(
          fmt::format("train.copy_every = {} does nothing here: copies in memory are made under `lockstep "
                      "launch`, whose agent keeps them",
                      train.copy_every));
    return;
  }
  if (train.copy_every == 0) return;
  const std::string why_not = run.begin_copies(*place);
  on_ = why_not.empty();
  if (!on_) stop(why_not);
  if (!on_ || pace_.every() == kCopyAuto) return;
  watcher.note(fmt::format("the state is copied into memory after {}", every_text(pace_.every())));
  if (train.copy_every == kCopyAuto && run.is_first_rank()) keep(pace_.every(), progress);
}

void Copying::stop(const std::string& why) {
  on_ = false;
  const std::int64_t every = run_.spec().train.save_every;
  watcher_.note(fmt::format("no copies of the state in memory: {}; {}", why,
                            every > 0
                                ? fmt::format("a fault costs up to train.save_every = {} steps", every)
                                : std::string("a fault costs all steps since the run began; set train.save_every")));
}

void Copying::copy(const Progress& progress) {
  if (!on_) return;
  run_.copy(progress);
  in_flight_ = copied_ = true;
  pace_.copied(progress.step);
}

void Copying::settle() {
  if (!std::exchange(in_flight_, false)) return;
  const SaveResult result = run_.settle_copy();
  if (result.outcome == SaveOutcome::saved) return;
  run_.end_copies();
  stop(result.words);
}

void Copying::go_back(std::int64_t step) {
  settle();
  copied_ = false;
  if (!on_) return;
  run_.end_copies();
  place_->resumed = 0;
  pace_.copied(step);
  const std::string why_not = run_.begin_copies(*place_);
  if (!why_not.empty()) stop(why_not);
}

void Copying::stepped(Progress& progress, double seconds) {
  const bool copied = std::exchange(copied_, false);
  if (!on_ || !run_.is_first_rank()) return;
  if (const auto choice = pace_.stepped(seconds, copied)) choose(*choice, progress);
}

void Copying::choose(const CopyPace::Choice& choice, Progress& progress) {
  keep(choice.every, progress);
  const double share = 100 * choice.copy_seconds / choice.step_seconds;
  watcher_.note(fmt::format("the state is copied into memory after {}: a copy adds {:.1f} % to a step of {:.3g} ms",
                            every_text(choice.every), share, 1e3 * choice.step_seconds));
}

void Copying::keep(std::int64_t every, Progress& progress) {
  run_.use_copy_every(every);
  progress.run_file = to_toml(run_.spec());
  watcher_.resolved(progress.run_file);
}

}  // namespace lockstep
