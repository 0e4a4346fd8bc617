// How far a run is, some seconds after it began or resumed, while nothing fails.
//
// It repeats `every` steps and a save that stalls it. The save is on disk `write` seconds after its stall, and the next
// save waits for that. Saves, counted from 1, therefore end at  e₁ = every·step + stall  and then every
// stall + max(every·step, write)  seconds. Every function takes the same time for any number of steps.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep {

struct SaveCadence {
  double step;         // seconds
  std::int64_t every;  // steps
  double stall, write;

  struct Progress {
    std::int64_t saves = 0;          // whose stalls are over
    std::int64_t steps = 0;          // finished
    std::int64_t steps_on_disk = 0;  // that the newest checkpoint on disk has
    double computing_seconds = 0;
    double saving_seconds = 0;  // stalls and waiting for the disk; with the computing ones, all that passed
  };

  double work() const { return static_cast<double>(every) * step; }
  double period() const { return stall + std::max(work(), write); }
  double end_of_save(std::int64_t save) const { return work() + stall + static_cast<double>(save - 1) * period(); }
  // The first save that ends at this moment or later.
  std::int64_t save_at_or_after(double seconds) const {
    const double more = std::ceil((seconds - end_of_save(1)) / period());
    return more > 0 ? 1 + static_cast<std::int64_t>(more) : 1;
  }
  // As a save's stall ends.
  Progress after(std::int64_t save) const {
    const double computing = static_cast<double>(save) * work();
    return {.saves = save,
            .steps = save * every,
            .steps_on_disk = (write > 0 ? save - 1 : save) * every,
            .computing_seconds = computing,
            .saving_seconds = end_of_save(save) - computing};
  }
  Progress at(double seconds) const {
    const double first = end_of_save(1);
    const std::int64_t saves =
        seconds < first ? 0 : 1 + static_cast<std::int64_t>(std::floor((seconds - first) / period()));
    const double since = saves == 0 ? seconds : std::max(0.0, seconds - end_of_save(saves));
    const std::int64_t steps = since < work() ? std::min(every, static_cast<std::int64_t>(since / step)) : every;
    const double computing = static_cast<double>(saves) * work() + std::min(since, work());
    return {.saves = saves,
            .steps = saves * every + steps,
            .steps_on_disk = (saves > 0 && since < write ? saves - 1 : saves) * every,
            .computing_seconds = computing,
            .saving_seconds = seconds - computing};
  }
};

}  // namespace lockstep
