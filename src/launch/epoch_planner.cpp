#include "launch/epoch_planner.h"

#include <algorithm>
#include <array>

namespace lockstep {

namespace {
constexpr std::array<std::string_view, 4> kRules = {"restart", "spare", "shrink", "wait"};
}  // namespace

std::string_view name_of(OnFault rule) { return kRules[static_cast<std::size_t>(rule)]; }

std::optional<OnFault> on_fault_of(std::string_view name) {
  const auto at = std::ranges::find(kRules, name);
  if (at == kRules.end()) return std::nullopt;
  return static_cast<OnFault>(at - kRules.begin());
}

void EpochPlanner::joined(int agent, int slots) {
  agents_[agent] = slots;
  const auto of_agent = [agent](const RankSlot& slot) { return slot.agent == agent; };
  std::erase_if(excluded_, of_agent);
  std::erase_if(blame_, [&](const auto& entry) { return of_agent(entry.first); });
}

void EpochPlanner::lost(int agent) { agents_.erase(agent); }

std::vector<RankSlot> EpochPlanner::usable() const {
  std::vector<RankSlot> slots;
  for (const auto& [agent, count] : agents_)
    for (int number = 0; number < count; ++number)
      if (!excluded_.contains({agent, number})) slots.push_back({agent, number});
  return slots;
}

// The largest layout over these slots: the wanted one where they suffice.
std::optional<Epoch> EpochPlanner::over(const std::vector<RankSlot>& slots, std::uint32_t number) const {
  const int there = static_cast<int>(slots.size());
  std::optional<LaunchLayout> layout;
  if (there >= slots_needed(options_.wanted))
    layout = options_.wanted;
  else if (options_.layouts && !options_.one_process)
    layout = options_.layouts(there);
  if (!layout || slots_needed(*layout) > there) return std::nullopt;
  return Epoch{.number = number,
               .layout = *layout,
               .slots = {slots.begin(), slots.begin() + slots_needed(*layout)},
               .resumes = true};
}

std::optional<Epoch> EpochPlanner::first() const {
  std::optional<Epoch> epoch = over(usable(), 1);
  const bool shrinks = std::ranges::find(options_.rules, OnFault::shrink) != options_.rules.end();
  if (epoch && epoch->layout != options_.wanted && !shrinks) return std::nullopt;
  return epoch;
}

std::optional<Epoch> EpochPlanner::with_spares(const Epoch& last, const std::set<RankSlot>& blamed) const {
  std::vector<RankSlot> idle = usable();
  const auto is_well = [&](const RankSlot& slot) {
    return !blamed.contains(slot) && std::ranges::find(idle, slot) != idle.end();
  };
  std::vector<bool> keeps;
  for (const RankSlot& slot : last.slots) keeps.push_back(is_well(slot));
  std::erase_if(idle, [&](const RankSlot& slot) {
    return blamed.contains(slot) || std::ranges::find(last.slots, slot) != last.slots.end();
  });
  Epoch next = last;
  for (std::size_t rank = 0; rank < next.slots.size(); ++rank) {
    if (keeps[rank]) continue;
    if (idle.empty()) return std::nullopt;
    next.slots[rank] = idle.front();
    idle.erase(idle.begin());
  }
  if (!options_.one_process) std::ranges::sort(next.slots);  // the ranks of a host stay together
  return next;
}

EpochPlanner::Next EpochPlanner::after_fault(const Epoch& last, const std::set<RankSlot>& blamed, bool progress) {
  if (progress) blame_.clear();
  for (const RankSlot& slot : blamed) ++blame_[slot];
  const std::vector<RankSlot> well = usable();
  const auto numbered = [&](Epoch epoch) {
    epoch.number = last.number + 1;
    epoch.resumes = true;
    return epoch;
  };
  for (const OnFault rule : options_.rules) {
    switch (rule) {
      case OnFault::restart: {
        const bool possible = std::ranges::all_of(last.slots, [&](const RankSlot& slot) {
          const auto blame = blame_.find(slot);
          return std::ranges::find(well, slot) != well.end() &&
                 (options_.one_process || blame == blame_.end() || blame->second < kMostAtOneSlot);
        });
        if (possible) return {.epoch = numbered(last), .rule = rule};
        break;
      }
      case OnFault::spare:
        if (const auto epoch = with_spares(last, blamed)) {
          excluded_.insert(blamed.begin(), blamed.end());
          return {.epoch = numbered(*epoch), .rule = rule};
        }
        break;
      case OnFault::shrink: {
        std::vector<RankSlot> left;
        std::ranges::copy_if(well, std::back_inserter(left),
                             [&](const RankSlot& slot) { return !blamed.contains(slot); });
        if (const auto epoch = over(left, last.number + 1)) {
          excluded_.insert(blamed.begin(), blamed.end());
          return {.epoch = numbered(*epoch), .rule = rule};
        }
        break;
      }
      case OnFault::wait:
        return {.waits = true};
    }
  }
  return {};
}

std::optional<Epoch> EpochPlanner::find_larger(const Epoch& now) const {
  if (now.layout == options_.wanted) return std::nullopt;
  std::optional<Epoch> larger = over(usable(), now.number + 1);
  if (!larger || larger->layout.ranks <= now.layout.ranks) return std::nullopt;
  return larger;
}

}  // namespace lockstep
