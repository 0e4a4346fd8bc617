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
  stopped_.clear();
  before_.clear();
  went_.clear();
  const double now = seconds_since_1970();
  for (int rank = 0; rank < ranks_; ++rank) begins(rank, now);
}

void RankWatch::begins(int rank, double time) {
  if (const auto last = read(rank)) before_[rank] = {last->host, last->pid, last->time, time};
}

void RankWatch::ranks_went(const std::set<int>& ranks) {
  for (const int rank : ranks) {
    went_[rank] = true;
    stopped_.erase(rank);
  }
}

void RankWatch::ranks_came(const std::set<int>& ranks) {
  const double now = seconds_since_1970();
  for (const int rank : ranks) {
    went_[rank] = false;
    begins(rank, now);
  }
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
    const auto went = went_.find(rank);
    if (!now || (went != went_.end() && went->second)) continue;
    const auto at = before_.find(rank);
    if (at == before_.end()) {
      all.push_back(*now);
      continue;
    }
    const Before& before = at->second;
    const bool is_new = std::pair(before.host, before.pid) != std::pair(now->host, now->pid);
    // The very same file may be dated later than this host's clock, by the clock of another.
    if (is_new || (now->time != before.time && now->time >= before.began)) all.push_back(*now);
  }
  return all;
}

std::optional<RankEnd> RankWatch::look() {
  const auto now = Clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return std::nullopt;
  looked_ = now;
  std::vector<RankNow> ranks = read();
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
  int away = 0;
  for (const auto& [rank, is_away] : went_) {
    away += is_away ? 1 : 0;
    // One that comes back sets up, and the others are judged meanwhile: as of a rank between two steps, which they may
    // be waiting for.
    if (!is_away && std::ranges::find(ranks, rank, &RankNow::rank) == ranks.end()) ranks.push_back({.rank = rank});
  }
  if (static_cast<int>(ranks.size()) + away < ranks_) return std::nullopt;  // some have not begun
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
