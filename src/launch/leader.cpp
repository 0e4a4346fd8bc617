#include "launch/leader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "launch/rank_end.h"

namespace lockstep {

namespace {

constexpr int kFailed = static_cast<int>(ExitCode::environment);
constexpr double kKillSeconds = 20;  // in which a process that is killed must be gone
constexpr double kInheritSeconds = 3;

double seconds_between(Leader::Clock::time_point from, Leader::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

Decision decision_of(OnFault rule) {
  switch (rule) {
    case OnFault::restart:
      return Decision::same;
    case OnFault::spare:
      return Decision::spare;
    case OnFault::shrink:
      return Decision::shrink;
    case OnFault::wait:
      break;
  }
  return Decision::wait;
}

}  // namespace

Leader::Leader(Options options, Hands hands, Clock::time_point now)
    : options_(std::move(options)),
      hands_(std::move(hands)),
      planner_(options_.plan),
      policy_(options_.most_restarts),
      phase_began_(now) {}

void Leader::inherit(const Epoch& last, const std::set<int>& agents) {
  epoch_ = last;
  last_set_ = agents;
  fault_ = "the leading agent is lost";
  // It was lost between the first epoch's beginning and telling of it.
  if (last.number == 0 && options_.last_epoch > 0) options_.resumes = true;
}

void Leader::joined(int agent, const AgentFacts& facts, Clock::time_point now) {
  agents_[agent] = facts;
  lost_.erase(agent);
  since_[agent] = now;
  planner_.joined(agent, facts.slots);
}

void Leader::lost(int agent, const std::string& how, Clock::time_point now) {
  const auto at = agents_.find(agent);
  if (at == agents_.end()) return;
  const std::string name = at->second.name;
  lost_[agent] = at->second;
  agents_.erase(at);
  since_.erase(agent);
  planner_.lost(agent);
  if (go_on_without_host(agent, name, how)) return;
  bool concerned = false;
  for (std::size_t rank = 0; rank < epoch_.slots.size(); ++rank) {
    if (epoch_.slots[rank].agent != agent || !running_.erase(static_cast<int>(rank))) continue;
    ends_[static_cast<int>(rank)] = {.rank = static_cast<int>(rank), .code = kFailed, .killed = true};
    blamed_.insert(epoch_.slots[rank]);
    concerned = true;
  }
  if (!concerned) {
    hands_.tell(fmt::format("host {} is lost: {}; none of the ranks ran there", name, how));
    return;
  }
  fail(fmt::format("host {} is lost: {}", name, how), std::nullopt, now);
  killed_ = false;
  end_ranks(now);
}

void Leader::ended(int /*agent*/, std::uint32_t epoch, const RankEnd& end, Clock::time_point now) {
  if (epoch != epoch_.number || !running_.contains(end.rank) || go_on_without(end)) return;
  const bool hangs = !end.found.empty();
  if (!hangs) {
    running_.erase(end.rank);
    ends_[end.rank] = end;
  }
  if (end.killed || (!hangs && end.code == 0)) return;
  if (fault_.empty()) fault_code_ = end.code;
  const bool blames = hangs || by_signal(end);
  const bool of_all = options_.plan.one_process && epoch_.layout.ranks > 1;
  if (blames && !of_all && !culprit_) culprit_ = end.rank;
  fail(fmt::format("{} {}", of_all ? "the process of the ranks" : place_of(end.rank), how_it_ended(end)),
       blames ? std::optional(end.rank) : std::nullopt, now);
  if (blames) end_ranks(now);  // the others can only fail too: why wait for them
}

void Leader::stalled(const RankEnd& stall, Clock::time_point now) {
  if (phase_ != Phase::running || running_.empty() || go_on_without(stall)) return;
  if (!culprit_) culprit_ = stall.rank;
  fail(fmt::format("{} {}", place_of(stall.rank), stall.found), stall.rank, now);
  end_ranks(now);
}

void Leader::fail(const std::string& fault, std::optional<int> rank, Clock::time_point now) {
  if (rank) blamed_.insert(epoch_.slots[options_.plan.one_process ? 0 : static_cast<std::size_t>(*rank)]);
  if (!fault_.empty()) return;
  fault_ = fault;
  phase_ = Phase::ending;
  phase_began_ = now;
}

void Leader::end_ranks(Clock::time_point now) {
  if (std::exchange(killed_, true)) return;
  phase_ = Phase::ending;
  phase_began_ = now;
  for (const auto& [agent, facts] : agents_) hands_.kill(agent);
}

std::string Leader::place_of(int rank) const {
  const RankSlot& slot = epoch_.slots[options_.plan.one_process ? 0 : static_cast<std::size_t>(rank)];
  const auto at = agents_.find(slot.agent);
  if (at == agents_.end() || options_.agents == 1) return fmt::format("rank {}", rank);
  return fmt::format("rank {} on {}", rank, at->second.name);
}

// One process of all ranks has no place of its own.
std::string Leader::name_of_place(const RankSlot& slot) const {
  if (options_.plan.one_process) return "";
  for (const auto* agents : {&agents_, &lost_})
    if (const auto at = agents->find(slot.agent); at != agents->end())
      return fmt::format("slot {} of {}", slot.number, at->second.name);
  return "";
}

void Leader::tick(Clock::time_point now) {
  if (over_) return;
  switch (phase_) {
    case Phase::gathering:
      return gather(now);
    case Phase::running:
      return run(now);
    case Phase::ending:
      return finish_ending(now);
    case Phase::beginning:
      return begin(now);
    case Phase::waiting:
      return await_hosts(now);
  }
}

bool Leader::has_quorum() const {
  if (last_set_.empty()) return 2 * static_cast<int>(agents_.size()) > options_.agents;
  const auto there = std::ranges::count_if(last_set_, [&](int agent) { return agents_.contains(agent); });
  return 2 * static_cast<std::size_t>(there) >= last_set_.size();
}

std::string Leader::who_is_missing() const {
  std::vector<std::string> missing;
  for (int agent = 0; agent < options_.agents; ++agent)
    if (!agents_.contains(agent))
      missing.push_back(static_cast<std::size_t>(agent) < options_.names.size()
                            ? options_.names[static_cast<std::size_t>(agent)]
                            : fmt::format("host {} of the list", agent));
  return fmt::format("{} of {} hosts {} there; {} {} not", agents_.size(), options_.agents,
                     agents_.size() == 1 ? "is" : "are", fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are");
}

std::string Leader::waited_in_vain() const {
  return fmt::format("{} after {:.0f} s of waiting; mend them, then start it again with --resume", who_is_missing(),
                     options_.wait_seconds);
}

void Leader::gather(Clock::time_point now) {
  if (stopping_) return finish(0, "");
  const bool inherits = epoch_.number > 0;
  const double waited = seconds_between(phase_began_, now);
  const bool all = inherits ? std::ranges::all_of(last_set_, [&](int a) { return agents_.contains(a); })
                            : static_cast<int>(agents_.size()) >= options_.agents;
  if (!all && waited < (inherits ? kInheritSeconds : options_.start_seconds)) return;
  if (!has_quorum()) {
    if (inherits && waited < options_.wait_seconds) return;
    if (inherits) return finish(kFailed, waited_in_vain());
    return finish(kFailed, fmt::format("{}; start `lockstep launch` there, or name fewer --hosts", who_is_missing()));
  }
  if (inherits) {
    for (const RankSlot& slot : epoch_.slots)
      if (!agents_.contains(slot.agent)) blamed_.insert(slot);
    return conclude(now);
  }
  next_ = planner_.first();
  if (!next_) return finish(kFailed, fmt::format("{}; no layout fits those", who_is_missing()));
  next_->number = options_.last_epoch + 1;
  next_->resumes = options_.resumes;
  phase_ = Phase::beginning;
  phase_began_ = now;
  begin(now);
}

void Leader::begin(Clock::time_point now) {
  if (stopping_) return finish(0, "");
  if (!has_quorum()) {
    phase_ = Phase::waiting;
    phase_began_ = now;
    return;
  }
  if (!hands_.folder_is_free()) {
    if (hands_.epoch_is_taken && hands_.epoch_is_taken(next_->number)) {  // by who trains there
      deposed_ = true;
      return finish(kFailed, fmt::format("another agent has begun epoch {} of this run", next_->number));
    }
    if (seconds_between(phase_began_, now) < options_.folder_seconds) return;
    return finish(kFailed, "another process is training in the run folder; stop it, or choose another --out");
  }
  try {
    if (!hands_.take_epoch(next_->number)) {
      deposed_ = true;
      return finish(kFailed, fmt::format("another agent has begun epoch {} of this run", next_->number));
    }
  } catch (const EnvironmentError& error) {  // its disk is full, or gone for a while
    if (seconds_between(phase_began_, now) >= options_.folder_seconds) return finish(kFailed, error.what());
    if (!std::exchange(told_of_folder_, true))
      hands_.tell(fmt::format("{}; trying for {:.0f} s", error.what(), options_.folder_seconds));
    return;
  }
  told_of_folder_ = false;
  epoch_ = *std::exchange(next_, std::nullopt);
  ends_.clear();
  running_.clear();
  blamed_.clear();
  fault_.clear();
  fault_code_ = 0;
  culprit_.reset();
  killed_ = asked_ = grows_ = false;
  down_.clear();
  servers_ended_.reset();
  last_set_.clear();
  for (const auto& [agent, facts] : agents_) last_set_.insert(agent);
  for (std::size_t rank = 0; rank < epoch_.slots.size(); ++rank) running_.insert(static_cast<int>(rank));
  phase_ = Phase::running;
  phase_began_ = now;
  std::set<int> begun;
  for (auto& [agent, order] : orders(running_)) {
    order.joins = !begun.insert(agent).second;
    hands_.start(agent, order);
  }
}

// By agent, and by party that meets apart.
std::vector<std::pair<int, EpochOrder>> Leader::orders(const std::set<int>& ranks) const {
  const LaunchWorkers apart = workers();
  const auto first_of_party = [&](int rank) {
    return apart.count == 0 ? 0 : rank < apart.ranks() ? rank / apart.line * apart.line : apart.ranks();
  };
  const auto slot_of = [&](int rank) { return epoch_.slots[static_cast<std::size_t>(rank)]; };
  const bool one_host =
      std::ranges::all_of(epoch_.slots, [&](const RankSlot& s) { return s.agent == epoch_.slots.front().agent; });
  std::map<std::pair<int, int>, EpochOrder> all;  // by agent and party
  for (const int rank : ranks) {
    const int first = first_of_party(rank);
    EpochOrder& order = all[{slot_of(rank).agent, first}];
    order.epoch = epoch_.number;
    order.layout = epoch_.layout;
    order.resumes = epoch_.resumes;
    order.master = one_host ? "127.0.0.1" : agents_.at(slot_of(first).agent).address;
    order.places.push_back({.rank = rank, .slot = slot_of(rank).number});
  }
  std::vector<std::pair<int, EpochOrder>> list;
  for (auto& [key, order] : all) list.emplace_back(key.first, std::move(order));
  return list;
}

void Leader::run(Clock::time_point now) {
  if (running_.empty()) return conclude(now);
  if (workers().count > 0) {
    if (!servers_run()) return end_workers(now);
    start_workers_again();
  }
  if (asked_) return;
  const bool steady = std::ranges::all_of(since_,
                                          [&](const auto& entry) {
                                            return seconds_between(entry.second, now) >= options_.grow_after_seconds;
                                          }) &&
                      seconds_between(phase_began_, now) >= options_.grow_after_seconds;
  const std::optional<Epoch> larger = steady ? planner_.find_larger(epoch_) : std::nullopt;
  if (!stopping_ && !larger) return;
  asked_ = true;
  grows_ = !stopping_;
  if (grows_) {
    const std::string text =
        fmt::format("hosts have come back: {} ranks become {}", epoch_.layout.ranks, larger->layout.ranks);
    hands_.tell(text);
    hands_.decided({.decision = Decision::grow,
                    .step = hands_.last_step(),
                    .text = text,
                    .epoch = larger->number,
                    .ranks = larger->layout.ranks});
  }
  for (const auto& [agent, facts] : agents_) hands_.ask_to_end(agent);
}

void Leader::finish_ending(Clock::time_point now) {
  if (running_.empty()) return conclude(now);
  const double waited = seconds_between(phase_began_, now);
  if (!killed_ && waited >= options_.grace_seconds) return end_ranks(now);
  if (killed_ && waited >= kKillSeconds)
    finish(kFailed, fmt::format("{}, and {} cannot be killed; look at its host", fault_, place_of(*running_.begin())));
}

// An exit code of 0, or mpirun's 1 for a rank that has ended so, is believed only of a rank that has come to its end.
void Leader::find_early_end() {
  const bool of_all = options_.plan.one_process;
  for (const auto& [rank, end] : ends_) {
    const bool believed = end.code != 0 && !(of_all && end.code == static_cast<int>(ExitCode::check_failed));
    if (end.killed || believed || !hands_.is_unfinished ||
        !hands_.is_unfinished(of_all ? std::nullopt : std::optional(rank)))
      continue;
    fault_ = fmt::format("{} has ended with exit code {} before the end of its run",
                         of_all && epoch_.layout.ranks > 1 ? "the process of the ranks" : place_of(rank), end.code);
    fault_code_ = 0;
    blamed_.insert(epoch_.slots[of_all ? 0 : static_cast<std::size_t>(rank)]);
    return;
  }
}

// All processes of the epoch have ended.
void Leader::conclude(Clock::time_point now) {
  const std::int64_t step = hands_.last_step();
  if (!stopping_ && !grows_ && blamed_.empty()) find_early_end();
  if (fault_.empty()) {
    if (!grows_ || stopping_ || (options_.steps > 0 && step >= options_.steps)) return finish(0, "");
    if (const auto larger = planner_.find_larger(epoch_)) return follow(*larger, now);
    Epoch same = epoch_;  // who had come is gone again
    ++same.number;
    same.resumes = true;
    return follow(same, now);
  }
  if (!has_quorum()) {  // nothing is decided here, nor written
    hands_.tell(fmt::format("{}; {}: this side of the split waits", fault_, who_is_missing()));
    phase_ = Phase::waiting;
    phase_began_ = now;
    return;
  }
  // Of ranks that have ended by themselves, one that knows why counts, and not those that only miss it.
  for (const auto& [rank, end] : ends_)
    if (fault_code_ != 0 && !end.killed && end.code != 0 &&
        RestartPolicy(0).decide({.code = end.code}, false).reason.empty())
      fault_code_ = end.code;
  if (fault_code_ != 0) {
    // A mistake of the user's, which all ranks may have reported: restarting would not help.
    const RestartDecision plain = RestartPolicy(0).decide({.code = fault_code_, .last_step = step}, stopping_);
    if (plain.reason.empty()) return finish(plain.code, "");
  }
  if (const auto named = hands_.blamed_rank();
      !culprit_ && named && (blamed_.empty() || options_.plan.one_process) && *named < epoch_.layout.ranks) {
    culprit_ = named;
    if (blamed_.empty() && !options_.plan.one_process) blamed_.insert(epoch_.slots[static_cast<std::size_t>(*named)]);
  }
  std::string found = fault_;
  if (culprit_ && !fault_.starts_with(fmt::format("rank {} ", *culprit_)))
    found += fmt::format(" because of rank {}", *culprit_);
  const bool progress = step > furthest_;
  furthest_ = std::max(furthest_, step);
  const std::string place = blamed_.size() == 1 ? name_of_place(*blamed_.begin()) : "";
  const RestartDecision decision =
      policy_.decide({.code = kFailed, .last_step = step, .found = found, .place = place}, stopping_);
  if (!decision.restarts) {
    hands_.decided({.fault = decision.reason, .culprit = culprit_, .decision = Decision::end, .step = step});
    return finish(decision.code, decision.reason);
  }
  const EpochPlanner::Next next = planner_.after_fault(epoch_, blamed_, progress);
  if (!next.epoch && !next.waits) {
    const std::string reason =
        fmt::format("{}, and no rule of --on-fault applies; add hosts or spares, then start it again with --resume",
                    decision.reason);
    hands_.decided({.fault = decision.reason, .culprit = culprit_, .decision = Decision::end, .step = step});
    return finish(kFailed, reason);
  }
  const std::string what =
      next.waits ? fmt::format("waiting up to {:.0f} s for hosts to come back", options_.wait_seconds)
      : next.rule == OnFault::shrink
          ? fmt::format("continuing with {} ranks ({})", next.epoch->layout.ranks, next.epoch->layout.text)
      : next.rule == OnFault::spare ? std::string("a spare takes its place")
                                    : std::string("the same ranks start again");
  hands_.tell(fmt::format("{}; {}: restart {} of at most {}", decision.reason, what, policy_.restarts(),
                          options_.most_restarts));
  hands_.decided({.fault = decision.reason,
                  .culprit = culprit_,
                  .decision = next.waits ? Decision::wait : decision_of(next.rule),
                  .step = step,
                  .text = what,
                  .epoch = next.epoch ? next.epoch->number : 0,
                  .ranks = next.epoch ? next.epoch->layout.ranks : 0});
  if (next.epoch) return follow(*next.epoch, now);
  phase_ = Phase::waiting;
  phase_began_ = now;
}

void Leader::follow(const Epoch& next, Clock::time_point now) {
  next_ = next;
  phase_ = Phase::beginning;
  phase_began_ = now;
  begin(now);
}

void Leader::await_hosts(Clock::time_point now) {
  if (stopping_) return finish(0, "");
  const EpochPlanner::Next next =
      has_quorum() ? planner_.after_fault(epoch_, {}, true) : EpochPlanner::Next{.waits = true};
  if (next.epoch) return follow(*next.epoch, now);
  if (seconds_between(phase_began_, now) < options_.wait_seconds) return;
  finish(kFailed, waited_in_vain());
}

void Leader::finish(int code, const std::string& reason) {
  over_ = true;
  code_ = code == 0 && hands_.last_step() < options_.steps ? options_.stopped_code : code;
  reason_ = reason;
}

}  // namespace lockstep
