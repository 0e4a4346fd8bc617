// Mask steps of one rank: the mask grows, and the state of what stays is laid out anew (spec/run/sparsity_spec.h,
// docs/sparsity.md).
//
// A mask step goes unit by unit. The unit's master weights are brought together whole, what is masked already as NaN,
// among the ranks that shard them; every one of these ranks finds the same mask (parallel/magnitude_mask.h) and packs
// its own shard of the state (parallel/zero_shards.h). So at the peak there are the old and the new state of one unit,
// and beside them its masters whole. Then the ranks that compute with these weights get them, with zeros.
//
// On meta nobody knows which elements stay: a shard is taken to keep as many as it can. That is what it has where it
// holds whole matrices, and under a whole 2:4 mask of (out, in) matrices; elsewhere it is an upper bound.
//
// A checkpoint speaks of whole tensors: between open() and close() there are copies of packed state in its places, and
// of the mask, 1 for what stays (part "mask"). They are there all at once, or in turns, one unit after the other in the
// same memory.
//
// One thread uses it; setup and shards outlive it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/gradients.h"
#include "parallel/zero_shards.h"
#include "train/rank_setup.h"
#include "train/relayout.h"

namespace lockstep {

class MaskSteps {
 public:
  static constexpr const char* kMaskPart = "mask";

  // Of the blocks' units that are held here.
  MaskSteps(RankSetup& setup, std::map<int, ZeroShard>& shards);

  // After so many training steps, no step being in flight; all ranks call it. What follows is to send weights to the
  // ranks that did not update them.
  Relayout grow(std::int64_t steps);

  const ZeroShard::Room& room() const { return room_; }
  // Zeros in the gradients of what is masked: in the norm too they count nothing.
  void mask(const Gradients& gradients);

  // Copies of the state, whole, as views by unit and part: "weight", "mask", and the optimizer's names. Parts that are
  // not packed have none. They hold what is there; in turns, after turn_to() was told of any tensor of the unit.
  void open(bool in_turns = false);
  void turn_to(const std::string& tensor);
  bool is_open() const { return open_; }
  Tensor whole(int unit, std::string_view part) const;  // none: it is not packed
  // The checkpoint's masks become this rank's, and the copies go.
  void take();
  void close();

 private:
  bool masks(int unit) const { return unit > 0 && unit + 1 < setup_.model.units(); }
  void fill_copies(int unit);
  std::int64_t copied_bytes(int unit, const ZeroShard& shard) const;
  MaskWords find(int unit, const ZeroShard& shard, std::int64_t steps);
  Survivors survivors(int unit, const ZeroShard& shard, const MaskWords& words, std::int64_t steps) const;

  RankSetup& setup_;
  std::map<int, ZeroShard>& shards_;
  ZeroShard::Room room_;
  std::map<int, Buffer> copies_;  // by unit, or one for all
  std::map<std::pair<int, std::string>, Tensor> whole_;
  std::map<std::string, int> unit_of_;  // by tensor, where copies are in turns
  int turn_ = -1;                       // the unit whose they are
  bool open_ = false;
};

}  // namespace lockstep
