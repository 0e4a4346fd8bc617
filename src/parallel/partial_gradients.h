// Gradients of parameters that several ranks of a tensor-parallel group hold alike and of which each computes a part:
// norms whose rows are split over ranks (sequence parallelism), norms of heads, key/value heads that several ranks
// share.
//
//   gradient = Σ over the ranks that hold the parameter of their parts
//
// They are summed before anything else is done with them; neighbours in the flat buffer are one message. One thread
// uses it; ranks and layouts outlive it.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "spec/model/parameters.h"
#include "tensor/tensor.h"

namespace lockstep {

class PartialGradients {
 public:
  // All ranks of the group make theirs at the same point.
  PartialGradients(const std::vector<const UnitLayout*>& layouts, Communicator& ranks, Algorithm algorithm);

  // `flat`: the gradients of a unit, in the order of its layout.
  void sum(int unit, const Tensor& flat);

 private:
  struct Range {
    std::int64_t begin, end, over;
  };
  std::vector<std::vector<Range>> ranges_;  // by unit
  Communicator& ranks_;
  std::map<std::int64_t, std::unique_ptr<Communicator>> groups_;  // by how many ranks: those that are not all
  Reducing how_;
};

}  // namespace lockstep
