// The weights that units compute with, whole, where ranks hold or update only a shard of them.
//
// A layout has one of three cases:
// - every rank updates all it has: there is nothing to do;
// - every rank has all weights and updates a shard (ZeRO 1 and 2), or one rank updates all (central data parallel): the
//   update is published, and a unit that is being published is waited for before a phase reads it;
// - every rank has a shard (ZeRO 3): a unit is gathered before it is read, and released after. Gathered units share one
//   buffer by lifetime over the list of actions; the lists of a step and of evaluation have places of their own in it.
//   Units of a bundle whose gathers follow each other are gathered in one call, which the last of them starts.
//
// One thread uses it; storage, groups, memory and lists outlive it.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/zero_groups.h"
#include "parallel/zero_shards.h"
#include "spec/step/actions.h"

namespace lockstep {

class ZeroWeights {
 public:
  struct Options {
    std::vector<const UnitLayout*> layouts;  // by unit; an empty one of units that are elsewhere
    const std::vector<Action>& step;
    const std::vector<Action>& evaluation;
    StepShape shape = {};          // whose bundles go in one call
    bool overlap = true;           // false: every message is waited for before anything else is done
    std::optional<int> root = {};  // the rank that moves all
  };
  ZeroWeights(const Options& options, std::map<int, ZeroShard>& storage, ZeroGroups& groups, Memory& memory);

  void publish(int unit);
  // A list is run from its beginning.
  void begin(bool training);
  // The flat weights of the unit, as they will be when ready() has returned. Nothing is asked of a unit before its call
  // was started.
  Tensor gather(int unit);
  void release(int unit);
  // Before a phase that reads them.
  void ready(int unit);

 private:
  struct Gather {
    std::int64_t offset;  // in elements
    bool ends_call;
  };
  std::vector<Gather> places(const std::vector<Action>& list, std::int64_t& most) const;

  std::vector<const UnitLayout*> layouts_;
  std::map<int, ZeroShard>& storage_;
  ZeroGroups& groups_;
  StepShape shape_;
  bool overlap_;
  std::optional<int> root_;
  Buffer gathered_;
  std::array<std::vector<Gather>, 2> gathers_;  // by list (evaluation, training)
  bool training_ = true;
  std::size_t next_ = 0;            // of the list's gathers
  std::vector<Operands> together_;  // of the call that is to be started
  std::vector<int> units_together_;
  std::vector<std::shared_ptr<Communicator::Started>> pending_;  // by unit; those of one call share it
};

}  // namespace lockstep
