// The norm of the whole gradient, over all units and all ranks, each element counted once.
//
//   norm² = Σ g²   over every element of every logical tensor
//
// Every rank counts the shard that it updates with, less what several ranks of a layer hold alike and another of them
// counts (ParameterPiece::counted). Squares are summed in bins of integers (kernels/norm_sum.h), so the norm is equal
// bit for bit however parameters are sharded and in whatever order ranks add up. One thread uses it; storage and
// gradients outlive it.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "parallel/gradients.h"
#include "parallel/zero_groups.h"
#include "parallel/zero_shards.h"

namespace lockstep {

class GlobalNorm {
 public:
  GlobalNorm(const std::map<int, ZeroShard>& storage, const Gradients& gradients, Memory& memory);

  // Calls a function for each window of a unit's gradient that is offloaded: the elements from `begin` on, brought.
  using Window = std::function<void(std::int64_t begin, const Tensor& part, Stream& stream)>;
  using EachWindow = std::function<void(int unit, const Window&)>;
  // The bins of the whole gradient, when all gradients are those of the global batch: summed over the ranks that shard
  // state, those that split layers, and the stages.
  Tensor sum(ZeroGroups& replicas, Communicator& layers, Communicator& stages, Stream& stream,
             const EachWindow& each_window = {}) const;

 private:
  struct Range {
    std::int64_t begin, end;
  };
  std::vector<Tensor> counted_;
  std::map<int, std::vector<Range>> offloaded_;  // by unit whose gradient is: what of it is counted
  Buffer bins_;
};

}  // namespace lockstep
