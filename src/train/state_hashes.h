// Hashes of what a rank holds of a model in training: master weights, moments, and the weights that compute
// (kernels/block_hash.h), by unit.
//
// Two things are done with them, by which bits that change by themselves are found (docs/fault-tolerance.md, "Silent
// corruption"):
// - Other ranks hold the same: replicas over dp and cp, the copies of hybrid sharding, tp ranks of what is not split,
//   the other stage of a tied weight. Their hashes are compared every few steps (train/state_check.h).
// - What nobody else holds, and weights that the next update overwrites unread, would differ from nothing by then. They
//   are guarded: hashed after each update, and again before the next one.
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
  };

  StateHashes(RankSetup& setup, const RankState& state);

  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t guarded() const { return guarded_; }  // entries
  // In the stream's order; the results come to room for guarded() hashes when the stream has reached them.
  void hash_guarded(std::span<std::byte> to);
  std::vector<StateHash> hash_all();  // of entries(), guarded ones first; the stream has done its work when it returns

  // Guarded hashes after an update, and before the next one or at any time until then. The second throws
  // EnvironmentError that names this rank where they differ.
  void remember(std::span<const StateHash> after) { remembered_.assign(after.begin(), after.end()); }
  void forget() { remembered_.clear(); }
  void require_unchanged(std::span<const StateHash> now) const;

 private:
  void add(const RankState& state, int unit, const ZeroShard& shard);
  void add(HashedKind kind, const std::string& what, const std::string& place, bool guarded, const Tensor& content);
  void hash(const Entry& entry, std::int64_t index);

  RankSetup& setup_;
  const RankState& state_;
  std::vector<Entry> entries_;
  std::int64_t guarded_ = 0;
  Buffer hashes_;
  std::vector<StateHash> remembered_;  // none: nothing is known
};

}  // namespace lockstep
