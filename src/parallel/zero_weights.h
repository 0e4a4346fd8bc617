// The weights that units compute with, whole, where ranks hold or update only a shard of them.
//
// A layout has one of three cases:
// - every rank updates all it has: there is nothing to do;
// - every rank has all weights and updates a shard (ZeRO 1 and 2), one rank updates all (central data parallel), or
//   ranks that do not compute update a shard each (parameter servers): the update is published, and a unit that is
//   being published is waited for before a phase reads it;
// - every rank has a shard (ZeRO 3): a unit is gathered before it is read, and released after. Gathered units share one
//   buffer by lifetime over the list of actions; the lists of a step and of evaluation have places of their own in it.
//   A shard that is offloaded is brought into its place among the others first; that of a rank that has all there is
//   arrives while the phase before the one that reads it computes.
//   Units of a bundle whose gathers follow each other are gathered in one call, which the last of them starts.
//   They may be gathered in block codes ([sync] compress_weights; kernels/block_codes.h): each rank encodes its shard,
//   parameter by parameter, and every rank, that one too, computes with what all the codes decode to. Blocks lie the
//   same in any shard, so the number of ranks changes no bit; masters know nothing of it. Each gathered unit's codes
//   lie behind it and live as long.
//
// One thread uses it; storage, groups, memory and lists outlive it.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/block_codes.h"
#include "offload/fetches.h"
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
    StepShape shape = {};                 // whose bundles go in one call
    bool overlap = true;                  // false: every message is waited for before anything else is done
    std::optional<BlockForm> codes = {};  // that shards are gathered in; none: as they are
    std::optional<int> root = {};         // the rank that moves all
    bool on_disk = false;                 // where offloaded shards are
    Memory* rooms = nullptr;              // of a disk: room on the host, if the device's memory is not the host's
    // Of a unit whose weights are offloaded: what is fetched next waits for its last update.
    std::function<void(int unit, Stream& fetching)> before_fetch = {};
  };
  ZeroWeights(const Options& options, std::map<int, ZeroShard>& storage, ZeroGroups& groups, Memory& memory,
              Stream& stream);

  void publish(int unit);
  // A list is run from its beginning.
  void begin(bool training);
  // The flat weights of the unit, those that are trained and those that are frozen, as they will be when ready() has
  // returned. Nothing is asked of a unit before its call was started.
  struct Whole {
    Tensor weights, frozen;
  };
  Whole gather(int unit);
  void release(int unit);
  // Before a phase that reads them.
  void ready(int unit);
  std::int64_t fetched() const { return fetches_.bytes(); }  // bytes since the beginning

 private:
  struct Gather {
    std::int64_t offset;  // in elements
    bool ends_call;
  };
  // A unit that is gathered in codes.
  struct Coded {
    Tensor whole, code;
  };
  bool stays(int unit) const;
  std::int64_t trained_elements(int unit) const { return groups_.shard().padded(layouts_[unit]->owned()); }
  std::int64_t frozen_elements(int unit) const { return groups_.shard().padded(layouts_[unit]->frozen()); }
  Operands coded(int unit, const Tensor& whole, std::int64_t offset);
  void decode(int unit);
  std::vector<Gather> places(const std::vector<Action>& list, std::int64_t& most) const;

  std::vector<const UnitLayout*> layouts_;
  std::map<int, ZeroShard>& storage_;
  ZeroGroups& groups_;
  Stream& stream_;
  StepShape shape_;
  bool overlap_;
  std::optional<BlockForm> codes_;
  std::optional<int> root_;
  bool on_disk_;
  std::function<void(int, Stream&)> before_fetch_;
  Buffer gathered_;
  Buffer rooms_;                                // on the host, for the same places
  std::int64_t aligned_ = 0, rooms_begin_ = 0;  // elements before their first place
  std::array<std::vector<Gather>, 2> gathers_;  // by list (evaluation, training)
  bool training_ = true;
  std::size_t next_ = 0;            // of the list's gathers
  std::vector<Operands> together_;  // of the call that is to be started
  std::vector<int> units_together_;
  std::vector<std::shared_ptr<Communicator::Started>> pending_;  // by unit; those of one call share it
  std::vector<std::optional<Coded>> coded_;                      // by unit, until it is ready
  Fetches fetches_;                                              // by unit
};

}  // namespace lockstep
