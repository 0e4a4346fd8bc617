// The norm of the gradient of all units over all ranks, each element counted once.
//
// Every rank counts the part that it updates with, less what several ranks of one layer hold alike and another of them
// answers for; bins of integers (kernels/norm_sum.h) then add up in any order. One thread uses it; storage and
// gradients outlive it.
#pragma once
#include <map>
#include <vector>

#include "parallel/gradients.h"
#include "parallel/zero_groups.h"
#include "parallel/zero_shards.h"

namespace lockstep {

class GlobalNorm {
 public:
  GlobalNorm(const std::map<int, ZeroShard>& storage, const Gradients& gradients, Memory& memory);

  // When all gradients are those of the global batch: the bins of all of them, over the ranks that cut state between
  // them, those that cut layers, and the stages that have other layers.
  Tensor sum(ZeroGroups& replicas, Communicator& layers, Communicator& stages, Stream& stream) const;

 private:
  std::vector<Tensor> counted_;
  Buffer bins_;
};

}  // namespace lockstep
