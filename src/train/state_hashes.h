// Hashes of what a rank holds of a model in training: master weights, moments, and the weights that compute
// (kernels/block_hash.h), by unit.
//
// Two things are done with them, by which bits that change by themselves are found (docs/fault-tolerance.md, "Silent
// corruption"):
// - Other ranks hold the same: replicas over dp and cp, the copies of hybrid sharding, tp ranks of what is not split,
//   the other stage of a tied weight. Their hashes are compared every few steps (train/state_check.h).
// - What nobody else holds, and weights that the next update overwrites unread, would differ from nothing by then. They
//   are guarded: hashed after each update, and again before the next one. What a unit's update alone changes is hashed
//   right around that update: this rank's own part of weights too, which it publishes to others afterwards.
//
// One thread uses it; setup and state outlive it. On meta hashes are zeros, and their work is counted.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/memory.h"
#include "tensor/tensor.h"
#include "train/rank_setup.h"
#include "train/rank_state.h"

namespace lockstep {

struct StateHash {
  std::int64_t low = 0, high = 0;
  bool operator==(const StateHash&) const = default;
};

// What is compared together: all ranks that hold a kind of state at the same place hold all of it.
enum class HashedKind : std::uint8_t {
  weights,         // that compute
  optimizer,       // masters apart from them, and moments
  shared_by_all,   // by tp ranks: tensors that tp does not split
  shared_by_some,  // likewise, by some of them: the key and value heads of several query heads
  tied,            // a weight that two stages have
};
inline constexpr int kHashedKinds = 5;

class StateHashes {
 public:
  struct Entry {
    std::string name;  // for people: "block 3: m"
    HashedKind kind;
    std::uint64_t place;  // of which elements of the model it is: equal on the ranks that hold them
    bool guarded;
    Tensor content;
    int updated_by = -1;  // the unit whose update alone changes it; -1: publishing does too
  };

  StateHashes(RankSetup& setup, const RankState& state);

  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t guarded() const { return guarded_; }  // entries
  // Around the updates of a step, in the stream's order: of what is guarded, all is hashed before it changes and after
  // it has. fetch() is the last; the results come when the stream has reached it, to room for guarded() hashes each.
  void before_updates();
  void before_update(int unit) { hash_updated_by(unit, before_); }
  void after_update(int unit) { hash_updated_by(unit, after_); }
  void fetch(std::span<std::byte> before, std::span<std::byte> after);
  std::vector<StateHash> hash_all();  // of entries(), guarded ones first; the stream has done its work when it returns

  // Guarded hashes after an update, and before the next one or at any time until then. The second throws
  // EnvironmentError that names this rank where they differ.
  void remember(std::span<const StateHash> after) { remembered_.assign(after.begin(), after.end()); }
  void forget() { remembered_.clear(); }
  void require_unchanged(std::span<const StateHash> now) const;

 private:
  void add(const RankState& state, int unit, const ZeroShard& shard);
  void add(HashedKind kind, const std::string& what, const std::string& place, bool guarded, const Tensor& content,
           int updated_by = -1);
  void hash(std::int64_t index, Buffer& to);
  void hash_updated_by(int unit, Buffer& to);

  RankSetup& setup_;
  const RankState& state_;
  std::vector<Entry> entries_;
  std::int64_t guarded_ = 0;
  Buffer all_, before_, after_;        // hashes on the device, the two latter of what is guarded
  std::vector<StateHash> remembered_;  // none: nothing is known
};

}  // namespace lockstep
