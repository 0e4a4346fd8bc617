// Where the ranks of the next epoch run, and how many there are: the rules, as plain data.
//
// After a fault these are tried in the order the user gave, and the first that is possible is taken:
//   restart   the same ranks in the same slots. Not where a slot's host is lost, nor where a slot was to blame for
//             kMostAtOneSlot faults since the last step that was new.
//   spare     idle slots take the place of those that are lost or were to blame.
//   shrink    a layout of fewer ranks, over the slots that are left.
//   wait      no epoch until lost hosts have come back.
// A slot that was to blame and was replaced is used again only when its agent has joined anew: whoever mended the host
// has started it again. When slots come back to a run that has shrunk, it grows: find_larger().
//
// Which layouts there are is asked of `layouts`: the one for a number of slots, or nothing.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "launch/epoch.h"

namespace lockstep {

enum class OnFault : std::uint8_t { restart, spare, shrink, wait };
std::string_view name_of(OnFault rule);
std::optional<OnFault> on_fault_of(std::string_view name);

class EpochPlanner {
 public:
  using Layouts = std::function<std::optional<LaunchLayout>(int slots)>;
  static constexpr int kMostAtOneSlot = 2;

  struct Options {
    LaunchLayout wanted = {};
    bool one_process = false;  // all ranks have one slot together
    std::vector<OnFault> rules = {OnFault::restart, OnFault::spare, OnFault::shrink, OnFault::wait};
    Layouts layouts = {};  // none: no other than the wanted one
  };
  explicit EpochPlanner(Options options) : options_(std::move(options)) {}

  void joined(int agent, int slots);  // also of one that was there before: its slots are as new
  void lost(int agent);
  int usable_slots() const { return static_cast<int>(usable().size()); }

  // The first epoch: as wanted, or, where too few hosts have come, by the rules that need no earlier one.
  std::optional<Epoch> first() const;

  struct Next {
    std::optional<Epoch> epoch = {};  // none: wait, where that is a rule, or end
    OnFault rule = OnFault::wait;
    bool waits = false;
  };
  // `blamed`: slots that the fault is put down to; `progress`: there was a new step since the last fault.
  Next after_fault(const Epoch& last, const std::set<RankSlot>& blamed, bool progress);
  // The epoch that has more ranks than `now`, if slots allow it.
  std::optional<Epoch> find_larger(const Epoch& now) const;

 private:
  std::vector<RankSlot> usable() const;  // in order
  int slots_needed(const LaunchLayout& layout) const { return options_.one_process ? 1 : layout.ranks; }
  std::optional<Epoch> over(const std::vector<RankSlot>& slots, std::uint32_t number) const;
  std::optional<Epoch> with_spares(const Epoch& last, const std::set<RankSlot>& blamed) const;

  Options options_;
  std::map<int, int> agents_;         // that are there: their slots
  std::map<RankSlot, int> blame_;     // faults since the last new step
  std::set<RankSlot> excluded_ = {};  // until their agent joins anew
};

}  // namespace lockstep
