#include "plan/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

std::vector<SlowRank> draw_slow_ranks(std::int64_t ranks, const std::vector<SlowShare>& shares, std::uint64_t seed) {
  // Ranks in the order of a random number of each: the first of them are slow.
  const std::uint64_t key = random_key(seed, "slow ranks");
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;
  order.reserve(static_cast<std::size_t>(ranks));
  for (std::int64_t r = 0; r < ranks; ++r) {
    const Philox4 word = philox(key, static_cast<std::uint64_t>(r));
    order.emplace_back(static_cast<std::uint64_t>(word[0]) << 32 | word[1], r);
  }
  std::ranges::sort(order);
  std::vector<SlowRank> slow;
  for (const SlowShare& share : shares) {
    LOCKSTEP_CHECK(share.share >= 0 && share.share <= 1 && share.factor >= 1, "{} of all ranks are slow by {}",
                   share.share, share.factor);
    if (share.share == 0) continue;
    const std::int64_t left = ranks - std::ssize(slow);
    const std::int64_t count =
        std::clamp<std::int64_t>(std::llround(share.share * static_cast<double>(ranks)), 1, left);
    for (std::int64_t i = 0; i < count; ++i) slow.push_back({order[slow.size()].second, share.factor});
  }
  std::ranges::sort(slow, {}, &SlowRank::rank);
  return slow;
}

std::vector<ReplicaKind> replica_kinds(const LayoutSpec& layout, const std::vector<SlowRank>& slow) {
  const auto stages = static_cast<std::size_t>(layout.pp);
  std::map<std::int64_t, std::vector<double>> slowed;  // by replica
  for (const SlowRank& s : slow) {
    std::vector<double>& slowness = slowed.try_emplace(layout.dp_rank(s.rank), stages, 1.0).first->second;
    double& of_stage = slowness[static_cast<std::size_t>(layout.stage(s.rank))];
    of_stage = std::max(of_stage, s.factor);
  }
  const std::vector<double> usual(stages, 1.0);
  std::map<std::vector<double>, std::size_t> known;
  std::vector<ReplicaKind> kinds;
  for (std::int64_t replica = 0; replica < layout.dp; ++replica) {
    const auto at = slowed.find(replica);
    const std::vector<double>& slowness = at == slowed.end() ? usual : at->second;
    const auto [place, first] = known.try_emplace(slowness, kinds.size());
    if (first) kinds.push_back({.slowness = slowness, .members = {}});
    kinds[place->second].members.push_back(replica);
  }
  return kinds;
}

}  // namespace lockstep
