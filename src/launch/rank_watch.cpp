#include "launch/rank_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "launch/host_ranks.h"
#include "telemetry/process_state.h"
#include "telemetry/step_record.h"

namespace lockstep {

void RankWatch::epoch_began(int ranks) {
  ranks_ = ranks;
  began_ = seconds_since_1970();
  stopped_.clear();
  before_.clear();
  for (int rank = 0; rank < ranks_; ++rank)
    if (const auto last = read(rank)) before_[rank] = {last->host, last->pid};
}

std::optional<RankNow> RankWatch::read(int rank) const {
  try {
    auto now = read_rank_now(folder_ / "ranks" / fmt::format("rank-{:05}.now", rank));
    return now && now->rank == rank ? std::move(now) : std::nullopt;
  } catch (const UserError&) {  // of something else: it says nothing of the rank
    return std::nullopt;
  }
}

std::vector<RankNow> RankWatch::read() const {
  std::vector<RankNow> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto now = read(rank);
    if (!now) continue;
    const auto before = before_.find(rank);
    const bool is_new = before == before_.end() || before->second != std::pair(now->host, now->pid);
    if (is_new || now->time >= began_) all.push_back(*now);
  }
  return all;
}

std::optional<RankEnd> RankWatch::look() {
  const auto now = Clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return std::nullopt;
  looked_ = now;
  const std::vector<RankNow> ranks = read();
  for (const RankNow& rank : ranks) {
    if (rank.doing == DoingKind::ended || process_state(rank.host, rank.pid) != ProcessState::stopped) {
      stopped_.erase(rank.rank);
      continue;
    }
    Stopped& stopped = stopped_.try_emplace(rank.rank, Stopped{now, rank.time}).first->second;
    if (rank.time != stopped.told) stopped = {now, rank.time};  // it ran in between: it is slow
    const double seconds = std::chrono::duration<double>(now - stopped.since).count();
    if (seconds > HostRanks::kStopped)
      return RankEnd{.rank = rank.rank,
                     .found = fmt::format("(process {}) has been stopped for {:.0f} s", rank.pid, seconds)};
  }
  if (static_cast<int>(ranks.size()) < ranks_) return std::nullopt;  // some have not begun
  const std::vector<StalledRank> stalled = find_stalled(ranks, seconds_since_1970(), rules_);
  if (stalled.empty()) return std::nullopt;
  const StalledRank& worst = stalled.front();
  return RankEnd{.rank = worst.rank,
                 .found = fmt::format("(process {}) has been {} for {:.0f} s, longer than {:.0f} s", worst.pid,
                                      worst.what, worst.seconds, worst.limit)};
}

bool RankWatch::is_unfinished(std::optional<int> rank) const {
  return std::ranges::any_of(
      read(), [&](const RankNow& now) { return (!rank || now.rank == *rank) && now.doing != DoingKind::ended; });
}

std::vector<pid_t> RankWatch::processes_here() const {
  std::vector<pid_t> pids;
  for (const RankNow& rank : read()) {
    const ProcessState state = process_state(rank.host, rank.pid);
    if (state == ProcessState::running || state == ProcessState::stopped) pids.push_back(static_cast<pid_t>(rank.pid));
  }
  return pids;
}

}  // namespace lockstep
