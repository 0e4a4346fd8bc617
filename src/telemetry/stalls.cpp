#include "telemetry/stalls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool trains(const RankNow& now) { return now.doing != DoingKind::ended && now.doing != DoingKind::finishing; }

// Seconds that a rank may be where it is without anything moving on it.
double limit_of(const RankNow& now, const StallRules& rules) {
  const double usual = rules.times * now.usual.value_or(0);
  switch (now.doing) {
    case DoingKind::action:
    case DoingKind::evaluating:
      return now.usual ? std::max(rules.least, usual) : rules.unseen;
    case DoingKind::between_steps:
      return std::max(rules.unseen, usual);
    case DoingKind::saving:
      return now.usual ? std::max(rules.unseen, usual) : kNoLimit;
    case DoingKind::call:
    case DoingKind::finishing:
    case DoingKind::ended:
      return kNoLimit;
  }
  return kNoLimit;
}

StalledRank stalled(const RankNow& now, double seconds, double limit, bool silent = false) {
  return {.rank = now.rank,
          .host = now.host,
          .pid = now.pid,
          .what = place_text(now),
          .seconds = seconds,
          .usual = now.usual,
          .limit = limit,
          .silent = silent};
}

// All that train are in calls, and have been for long: those that the others wait for, as far as that is known.
std::vector<StalledRank> behind_in_calls(std::span<const RankNow> ranks, const StallRules& rules) {
  std::int64_t last_step = 0;
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> last_call;  // by step and group
  for (const RankNow& now : ranks) {
    if (!trains(now)) continue;
    if (now.doing != DoingKind::call || now.quiet < rules.unseen) return {};
    last_step = std::max(last_step, now.step);
    std::int64_t& call = last_call.try_emplace({now.step, now.group}, now.call).first->second;
    call = std::max(call, now.call);
  }
  std::vector<StalledRank> found;
  const auto add = [&](const auto& is_behind) {
    for (const RankNow& now : ranks)
      if (trains(now) && is_behind(now)) found.push_back(stalled(now, now.quiet, rules.unseen));
  };
  add([&](const RankNow& now) { return now.step < last_step; });
  if (found.empty()) add([&](const RankNow& now) { return now.call < last_call.at({now.step, now.group}); });
  return found;
}

}  // namespace

std::string place_text(const RankNow& now) {
  std::string text;
  if (now.doing == DoingKind::call)
    text = fmt::format("in {} #{} of '{}'", now.op, now.call, now.group);
  else if (!now.action.empty())
    text = fmt::format("in {}", now.action);
  else
    text = now.doing == DoingKind::saving       ? "saving"
           : now.doing == DoingKind::evaluating ? "evaluating"
           : now.doing == DoingKind::finishing  ? "saving the last state"
                                                : "between two steps";
  if (now.doing == DoingKind::call && !now.action.empty()) text += fmt::format(", in {}", now.action);
  return text + fmt::format(" of step {}", now.step);
}

std::vector<StalledRank> find_stalled(std::span<const RankNow> ranks, double time, const StallRules& rules) {
  std::vector<StalledRank> found;
  std::map<int, std::int64_t> steps;
  for (const RankNow& now : ranks) {
    if (!trains(now)) continue;
    steps[now.rank] = now.step;
    const double limit = limit_of(now, rules);
    if (rules.silent && time - now.time > *rules.silent)
      found.push_back(stalled(now, time - now.time, *rules.silent, true));
    else if (now.quiet > limit)
      found.push_back(stalled(now, now.quiet, limit));
  }
  if (found.empty()) found = behind_in_calls(ranks, rules);
  std::ranges::stable_sort(found, [&](const StalledRank& a, const StalledRank& b) {
    return std::pair(steps[a.rank], -a.seconds) < std::pair(steps[b.rank], -b.seconds);
  });
  return found;
}

std::string to_text(const StalledRank& rank) {
  const std::string who = fmt::format("rank {} (process {} on {})", rank.rank, rank.pid, rank.host);
  if (rank.silent)
    return fmt::format("{} has said nothing for {}; it was {}", who, seconds_text(rank.seconds), rank.what);
  return fmt::format("{} has been {} for {}{}", who, rank.what, seconds_text(rank.seconds),
                     rank.usual ? fmt::format(", which usually takes {}", seconds_text(*rank.usual)) : "");
}

}  // namespace lockstep
