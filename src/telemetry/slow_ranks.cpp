#include "telemetry/slow_ranks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/median.h"

namespace lockstep {

std::vector<double> usual_of_peers(std::span<const double> seconds, std::span<const PeerWork> work) {
  LOCKSTEP_CHECK(seconds.size() == work.size(), "{} ranks, work of {}", seconds.size(), work.size());
  std::map<std::int64_t, std::vector<double>> speeds;  // of each kind: seconds of a whole share
  const auto of_share = [&](std::size_t rank) { return seconds[rank] / work[rank].share; };
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) speeds[work[rank].peers].push_back(of_share(rank));
  for (auto& [kind, all] : speeds) std::ranges::sort(all);
  std::vector<double> usual(seconds.size(), std::numeric_limits<double>::quiet_NaN());
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    const std::vector<double>& all = speeds[work[rank].peers];
    if (all.size() < 2) continue;
    const std::size_t middle = (all.size() - 1) / 2;  // of the others
    const auto own = static_cast<std::size_t>(std::ranges::lower_bound(all, of_share(rank)) - all.begin());
    usual[rank] = all[middle < own ? middle : middle + 1] * work[rank].share;
  }
  return usual;
}

std::vector<SlowRanks::Change> SlowRanks::add(std::span<const double> seconds) {
  LOCKSTEP_CHECK(seconds.size() == work_.size(), "{} ranks, work of {}", seconds.size(), work_.size());
  for (std::size_t rank = 0; rank < sum_.size(); ++rank) sum_[rank] += seconds[rank];
  ++steps_;
  if (sum_.empty() || std::ranges::max(sum_) < kSampleSeconds) return {};
  Sample sample{.seconds = std::exchange(sum_, std::vector<double>(work_.size())), .steps = std::exchange(steps_, 0)};
  for (double& one : sample.seconds) one /= static_cast<double>(sample.steps);
  sample.usual = usual_of_peers(sample.seconds, work_);
  samples_.push_back(std::move(sample));
  if (static_cast<double>(samples_.size()) > kSamples) samples_.pop_front();
  std::vector<Change> all;
  for (std::size_t rank = 0; rank < work_.size(); ++rank)
    if (changes(states_[rank], samples_.back().seconds[rank], samples_.back().usual[rank]))
      all.push_back(change_of(rank));
  return all;
}

// NaN of a rank without peers compares to nothing.
bool SlowRanks::changes(State& state, double seconds, double usual) const {
  const bool says_so = state.slow ? seconds < kUsual * usual : seconds > kSlower * usual;
  state.count = std::max(0.0, state.count + (says_so ? 1 : -kPardon));
  if (state.count < kSamples) return false;
  state = {.slow = !state.slow};
  return true;
}

SlowRanks::Change SlowRanks::change_of(std::size_t rank) const {
  std::vector<double> own, usual;
  std::int64_t steps = 0;
  for (const Sample& sample : samples_) {
    own.push_back(sample.seconds[rank]);
    usual.push_back(sample.usual[rank]);
    steps += sample.steps;
  }
  return {.rank = static_cast<int>(rank),
          .slow = states_[rank].slow,
          .seconds = median(std::move(own)),
          .usual = median(std::move(usual)),
          .steps = steps};
}

}  // namespace lockstep
