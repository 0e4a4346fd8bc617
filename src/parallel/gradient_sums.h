// Sums of gradients over all ranks, under way while something else is computed.
//
// What each rank is to have of a sum is its part: the ranks that cut a copy between them scatter the sum (each gets its
// part), then those of other copies add theirs. Where nothing is cut, every rank gets all of it. Sums are started in
// one order on all ranks and end in it. With canonical sums and copies of a power of two of ranks, the bits are those
// of one sum over all ranks.
//
// One thread uses it; the groups outlive it, and the tensors every sum.
#pragma once
#include <deque>
#include <functional>

#include "parallel/zero_groups.h"

namespace lockstep {

class GradientSums {
 public:
  GradientSums(ZeroGroups& groups, Algorithm algorithm, bool overlap)
      : groups_(groups), how_{.algorithm = algorithm}, overlap_(overlap) {}

  struct Sum {
    ConstTensor in;                    // of this rank: all parts, one behind the other
    Tensor out;                        // this rank's part of the sum, which may be that part of `in`
    Communicator::Counts counts = {};  // elements of the parts, where they are not equal
    std::function<void()> after = {};  // called when it is there
  };
  void start(Sum sum);
  // Waits for the oldest until at most so many are under way.
  void settle(std::size_t most = 0);

 private:
  struct UnderWay {
    Sum sum;
    Communicator::Started scattered, added;
  };
  // Those whose part is there begin to be added across copies, in order.
  void go_on();
  void add_across(UnderWay& one);

  ZeroGroups& groups_;
  Reducing how_;
  bool overlap_;
  std::deque<UnderWay> under_way_;
};

}  // namespace lockstep
