#include "train/loss_spikes.h"

#include <algorithm>
#include <utility>

#include "checkpoint/all_or_none.h"
#include "checkpoint/checkpoint_reader.h"
#include "train/host_values.h"
#include "train/resume.h"

namespace lockstep {

LossSpikeGuard::LossSpikeGuard(const TrainSpec& spec, const Progress& progress) : spec_(spec) {
  if (!progress.spikes) return;
  usual_ = ZScore(progress.spikes->losses);
  skipped_ = progress.spikes->skipped;
}

std::optional<double> LossSpikeGuard::spike_of(double loss) const {
  if (spec_.loss_spikes != LossSpikes::rewind) return std::nullopt;
  const std::optional<double> z = usual_.of(loss);
  return z && *z > spec_.spike_z ? z : std::nullopt;
}

std::int64_t LossSpikeGuard::first_sample(const Progress& progress, std::int64_t step) const {
  std::int64_t first = progress.samples;
  for (std::int64_t at = progress.step;; ++at, first += spec_.global_batch) {
    while (std::ranges::find(skipped_, first) != skipped_.end()) first += spec_.global_batch;
    if (at >= step) return first;
  }
}

void LossSpikeGuard::skip(std::int64_t first, const Progress& saved) {
  skipped_.push_back(first);
  usual_ = saved.spikes ? ZScore(saved.spikes->losses) : ZScore();
}

std::optional<LossSpikeState> LossSpikeGuard::state() const {
  if (spec_.loss_spikes != LossSpikes::rewind) return std::nullopt;
  return LossSpikeState{skipped_, usual_.values()};
}

std::string find_saved_state(TrainingRun& run, std::int64_t step, const std::function<void(const std::string&)>& note) {
  std::string found;
  std::vector<std::int64_t> steps;
  if (run.is_first_rank()) steps = steps_in(run.checkpoints());
  std::ranges::reverse(steps);
  for (const std::int64_t of : steps) {
    if (of > step) continue;
    found = (run.checkpoints() / step_folder_name(of)).string();
    try {
      open_checkpoint(found);
      break;
    } catch (const UserError& damaged) {
      note(fmt::format("skipping {}: {}", std::exchange(found, ""), damaged.what()));
    }
  }
  if (run.ranks()) share_text(*run.ranks(), found, 0);
  return found;
}

Progress go_back(TrainingRun& run, const Progress& progress, const std::string& saved_state) {
  std::optional<Checkpoint> found;
  all_or_none(run.ranks(), [&]() -> std::string {
    found = open_verified_checkpoint(saved_state);
    return "";
  });
  const Progress& saved = found->progress();
  load_state(run, *found, [](const std::string&) {});
  run.replica().resume(saved.step, saved.updates, saved.loss_scale);
  Progress at = progress;
  at.step = saved.step;
  at.updates = saved.updates;
  at.samples = saved.samples;
  at.loss_scale = run.loss_scale();
  at.spikes = saved.spikes;
  return at;
}

}  // namespace lockstep
