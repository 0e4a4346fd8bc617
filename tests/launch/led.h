// What the leading agent decides, on a clock of the test's own: its agents are played by the test.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/leader.h"

namespace lockstep::tests {

inline std::optional<LaunchLayout> any(int slots) {
  if (slots < 1) return std::nullopt;
  return LaunchLayout{.ranks = slots, .text = "dp=" + std::to_string(slots)};
}

// Agents of two slots each, and what the leader has them do.
class Led {
 public:
  explicit Led(int agents, int ranks,
               std::vector<OnFault> rules = {OnFault::restart, OnFault::spare, OnFault::shrink, OnFault::wait},
               int stopped_code = 0, std::uint32_t last_epoch = 0, LaunchWorkers workers = {}, int most_restarts = 10)
      : leader_({.plan = {.wanted = {.ranks = ranks}, .rules = std::move(rules), .layouts = any},
                 .agents = agents,
                 .most_restarts = most_restarts,
                 .last_epoch = last_epoch,
                 .start_seconds = 10,
                 .wait_seconds = 30,
                 .grow_after_seconds = 1,
                 .steps = 100,
                 .stopped_code = stopped_code,
                 .workers = [workers](const LaunchLayout&) { return workers; }},
                hands(), now_) {}

  void join(int agent, int slots = 2) {
    leader_.joined(
        agent, {.name = "host-" + std::to_string(agent), .address = "10.0.0." + std::to_string(agent), .slots = slots},
        now_);
  }
  void join_all(int agents) {
    for (int agent = 0; agent < agents; ++agent) join(agent);
    tick();
  }
  void tick(double seconds = 0.05) {
    now_ += std::chrono::milliseconds(static_cast<int>(seconds * 1000));
    leader_.tick(now_);
  }
  void end(int rank, int code, bool killed = false) {
    leader_.ended(leader_.epoch().slots[static_cast<std::size_t>(rank)].agent, leader_.epoch().number,
                  {.rank = rank, .code = code, .killed = killed}, now_);
  }
  // Every rank that still runs is reported as killed, as agents do when they are told to.
  void end_killed() {
    for (int rank = 0; rank < static_cast<int>(leader_.epoch().slots.size()); ++rank) end(rank, 128 + 9, true);
  }
  void lose(int agent) { leader_.lost(agent, "silent", now_); }
  Leader& leader() { return leader_; }

  std::map<int, EpochOrder> orders;                 // the last of each agent
  std::vector<std::pair<int, EpochOrder>> started;  // all of them
  std::set<int> killed;                             // by kill_ranks
  std::set<int> away;                               // ranks that went and have not come
  int kills = 0, asks = 0;
  std::set<std::uint32_t> taken;  // by others
  bool folder_free = true, folder_full = false;
  std::int64_t step = 0;
  std::optional<int> named;
  std::set<int> unfinished;  // ranks, though they have ended
  std::vector<Leader::Hands::Decided> decisions;
  std::vector<std::string> told;

 private:
  Leader::Hands hands() {
    return {.start =
                [this](int agent, const EpochOrder& order) {
                  for (const EpochOrder::Place& place : order.places)
                    EXPECT_FALSE(away.contains(place.rank)) << "its file may be a new one's already";
                  orders[agent] = order;
                  started.emplace_back(agent, order);
                },
            .ask_to_end = [this](int) { ++asks; },
            .kill = [this](int) { ++kills; },
            .kill_ranks = [this](int, const std::set<int>& ranks) { killed.insert(ranks.begin(), ranks.end()); },
            .ranks_went = [this](const std::set<int>& ranks) { away.insert(ranks.begin(), ranks.end()); },
            .ranks_came =
                [this](const std::set<int>& ranks) {
                  for (const int rank : ranks) away.erase(rank);
                },
            .take_epoch =
                [this](std::uint32_t epoch) {
                  if (folder_full) throw EnvironmentError("no space left");
                  away.clear();
                  return taken.insert(epoch).second;
                },
            .epoch_is_taken = [this](std::uint32_t epoch) { return taken.contains(epoch); },
            .folder_is_free = [this] { return folder_free; },
            .last_step = [this] { return step; },
            .blamed_rank = [this] { return named; },
            .is_unfinished =
                [this](std::optional<int> rank) { return rank ? unfinished.contains(*rank) : !unfinished.empty(); },
            .tell = [this](const std::string& message) { told.push_back(message); },
            .decided = [this](const Leader::Hands::Decided& decided) { decisions.push_back(decided); }};
  }
  Leader::Clock::time_point now_ = Leader::Clock::now();
  Leader leader_;
};

}  // namespace lockstep::tests
