// Sums of gradients over all ranks, under way while something else is computed.
//
// Each rank receives its shard of a sum: the ranks that share one copy of the state reduce-scatter it, then the ranks
// that hold the same shard of other copies all-reduce theirs. Where nothing is sharded, it is one all-reduce. Sums
// start in the same order on all ranks and end in it. With canonical sums and copies of a power of two of ranks, the
// result is equal bit for bit to one sum over all ranks.
//
// A sum may be of several tensors, each as it would be by itself, in one call.
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
    ConstTensor in;                    // of this rank: all shards, one after the other
    Tensor out;                        // this rank's shard of the sum, which may be that slice of `in`
    std::vector<Operands> also = {};   // other tensors that are summed in the same call
    Communicator::Counts counts = {};  // elements of the shards, where they are not equal
    std::function<void()> after = {};  // called when the sum is complete
  };
  void start(Sum sum);
  // Waits for the oldest until at most `most` are under way.
  void settle(std::size_t most = 0);

 private:
  struct UnderWay {
    Sum sum;
    Communicator::Started scattered, added;
  };
  static std::vector<Operands> all_of(const Sum& sum);
  // Starts the sum across copies of those whose shard has arrived, in order.
  void go_on();
  void add_across(UnderWay& one);

  ZeroGroups& groups_;
  Reducing how_;
  bool overlap_;
  std::deque<UnderWay> under_way_;
};

}  // namespace lockstep
