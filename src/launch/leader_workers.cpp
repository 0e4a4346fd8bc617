// Workers that others do not need (leader.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "launch/leader.h"
#include "launch/rank_end.h"

namespace lockstep {

LaunchWorkers Leader::workers() const {
  if (!options_.workers || options_.plan.one_process || epoch_.slots.size() < 2) return {};
  return options_.workers(epoch_.layout);
}

std::set<int> Leader::ranks_of(int worker) const {
  const int line = workers().line;
  std::set<int> ranks;
  for (int rank = worker * line; rank < (worker + 1) * line; ++rank) ranks.insert(rank);
  return ranks;
}

// Whether all of it runs, or has come to the end of the run: the servers have let that one go, and end by themselves.
bool Leader::is_whole(int worker) const {
  const auto ended_well = [&](int rank) {
    const auto at = ends_.find(rank);
    return at != ends_.end() && at->second.code == 0 && !at->second.killed;
  };
  return !down_.contains(worker) &&
         std::ranges::all_of(ranks_of(worker), [&](int r) { return running_.contains(r) || ended_well(r); });
}

bool Leader::servers_run() const {
  return std::ranges::any_of(running_, [&](int rank) { return rank >= workers().ranks(); });
}

// Whether nobody but its own worker misses it.
bool Leader::go_on_without(const RankEnd& end) {
  const LaunchWorkers all = workers();
  if (phase_ != Phase::running || end.rank >= all.ranks()) return false;
  const int worker = end.rank / all.line;
  const bool hangs = !end.found.empty(), is_down = down_.contains(worker);
  if (!is_down && servers_run()) {
    const bool early = !hangs && end.code == 0 && hands_.is_unfinished && hands_.is_unfinished(end.rank);
    if (end.killed || (!hangs && end.code == 0 && !early)) return false;
    bool others = false;
    for (int other = 0; other < all.count; ++other) others |= other != worker && is_whole(other);
    if (!others) return false;
  }
  if (!hangs) {
    running_.erase(end.rank);
    ends_[end.rank] = {.rank = end.rank, .code = end.code, .killed = true};
  }
  if (!is_down && servers_run()) {
    const std::string fault = fmt::format("{} {}{}", place_of(end.rank), how_it_ended(end),
                                          !hangs && end.code == 0 ? " before the end of its run" : "");
    const bool mends = !hangs && end.code != 0 && RestartPolicy(0).decide({.code = end.code}, false).reason.empty();
    put_down(worker, end.rank, fault, !mends);
  }
  start_workers_again();
  return true;
}

// A host that had nothing but workers, while another has one that is whole.
bool Leader::go_on_without_host(int agent, const std::string& name, const std::string& how) {
  const LaunchWorkers all = workers();
  if (phase_ != Phase::running || all.count == 0) return false;
  std::set<int> lost;  // workers
  for (const int rank : running_) {
    if (epoch_.slots[static_cast<std::size_t>(rank)].agent != agent) continue;
    if (rank >= all.ranks()) return false;
    lost.insert(rank / all.line);
  }
  bool others = false;
  for (int worker = 0; worker < all.count; ++worker) others |= !lost.contains(worker) && is_whole(worker);
  if (lost.empty() || !others) return false;
  for (const int worker : lost) {
    for (const int rank : ranks_of(worker)) {
      if (epoch_.slots[static_cast<std::size_t>(rank)].agent != agent || !running_.erase(rank)) continue;
      ends_[rank] = {.rank = rank, .code = static_cast<int>(ExitCode::environment), .killed = true};
    }
    put_down(worker, worker * all.line, fmt::format("host {} is lost: {}", name, how), true);
  }
  return true;
}

// `again`: unless it has failed too often.
void Leader::put_down(int worker, int rank, const std::string& fault, bool again) {
  hands_.ranks_went(ranks_of(worker));  // before it is asked who else hangs
  std::set<int> left;
  for (const int one : ranks_of(worker))
    if (running_.contains(one)) left.insert(one);
  for (const int one : left) hands_.kill_ranks(epoch_.slots[static_cast<std::size_t>(one)].agent, {one});
  if (asked_ || stopping_) {
    down_[worker] = false;
    return hands_.tell(fmt::format("{} while the run is asked to end; the others do", fault));
  }
  const std::int64_t step = hands_.last_step();
  RestartPolicy& policy = worker_policies_.try_emplace(worker, options_.most_restarts).first->second;
  const RestartDecision decision =
      policy.decide({.code = static_cast<int>(ExitCode::environment), .last_step = step, .found = fault}, false);
  down_[worker] = again && decision.restarts;
  const std::string what = !again ? fmt::format("worker {} stays away, since starting it again would not help", worker)
                           : decision.restarts ? fmt::format("worker {} starts again, start {} of at most {}", worker,
                                                             policy.restarts(), options_.most_restarts)
                                               : fmt::format("worker {} stays away", worker);
  const std::string text = fmt::format("{}; the others go on, and {}", decision.reason, what);
  hands_.tell(text);
  hands_.decided({.fault = decision.reason, .culprit = rank, .decision = Decision::go_on, .step = step, .text = what});
}

// Those of which nothing runs any more, and whose hosts are there.
void Leader::start_workers_again() {
  if (phase_ != Phase::running || asked_ || stopping_ || !servers_run()) return;
  for (auto at = down_.begin(); at != down_.end();) {
    const std::set<int> ranks = ranks_of(at->first);
    const bool ready =
        at->second && std::ranges::all_of(ranks, [&](int rank) {
          return !running_.contains(rank) && agents_.contains(epoch_.slots[static_cast<std::size_t>(rank)].agent);
        });
    if (!ready) {
      ++at;
      continue;
    }
    at = down_.erase(at);
    running_.insert(ranks.begin(), ranks.end());
    hands_.ranks_came(ranks);  // while the files are still those of the processes before
    for (auto& [agent, order] : orders(ranks)) {
      order.joins = true;
      hands_.start(agent, order);
    }
  }
}

// The servers have come to the end of the run, and let workers go that were there.
void Leader::end_workers(Clock::time_point now) {
  if (!servers_ended_) servers_ended_ = now;
  if (std::chrono::duration<double>(now - *servers_ended_).count() < options_.grace_seconds) return;
  for (const int rank : std::set<int>(running_))
    hands_.kill_ranks(epoch_.slots[static_cast<std::size_t>(rank)].agent, {rank});
}

}  // namespace lockstep
