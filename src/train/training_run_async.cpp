// Asynchronous steps of a run (async_steps.h): whose samples a ticket has, and where all ranks meet.
#include "train/training_run.h"

#include <algorithm>

namespace lockstep {

void TrainingRun::use_async() {
  AsyncSteps::Options options{
      .read =
          [this](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
            const Spending reading(account(), TimeUse::data);
            data_->training_batch(first, tokens, targets);
          },
      .read_evaluation =
          [this](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
            const Spending reading(account(), TimeUse::data);
            data_->evaluation_batch(first, tokens, targets);
          },
      .patience = std::max(60.0, spec_.run.deadline),
      .meets = {}};
  if (stream_->device() != Device::meta) {
    options.meets = [this, began = std::optional<std::int64_t>()](std::int64_t steps) mutable {
      const TrainSpec& t = spec_.train;
      if (!began) began = replica_->batches();
      const auto due = [&](std::int64_t every) { return every > 0 && steps % every == 0; };
      return steps >= t.steps || due(t.save_every) || (data_->has_evaluation() && due(t.eval_every)) ||
             (spec_.run.trace > 0 && steps <= *began + 1 + spec_.run.trace);
    };
    if (!spec_.sync.replay.empty()) {
      options.record = read_arrivals(spec_.sync.replay);
      ArrivalOrder::check(options.record, spec_.layout.dp, spec_.sync.replay);
    }
  }
  replica_->async().use(options);
}

}  // namespace lockstep
