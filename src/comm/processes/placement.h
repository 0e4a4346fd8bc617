// Which ranks of a group share a host, and which parts of a sum one host can compute alone.
//
// A host's leader, its first rank in the group, is the one that exchanges with other hosts.
#pragma once
#include <vector>

#include "comm/sum_order.h"

namespace lockstep::processes {

class Placement {
 public:
  Placement() = default;
  // hosts[r]: any number that ranks of one host share.
  Placement(const std::vector<int>& hosts, int rank);

  int ranks() const { return static_cast<int>(host_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  int host_of(int rank) const { return host_[static_cast<std::size_t>(rank)]; }  // numbered by their first ranks
  int mine() const { return mine_; }                                             // this rank's host
  bool here(int rank) const { return host_of(rank) == mine_; }
  const std::vector<int>& on(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  const std::vector<int>& local_ranks() const { return on(mine_); }  // and this rank itself
  int local_rank(int rank) const {
    return local_rank_[static_cast<std::size_t>(rank)];
  }  // its place among its host's ranks
  int leader(int host) const { return on(host).front(); }
  bool leads() const { return leads_; }

 private:
  std::vector<int> host_, local_rank_;
  std::vector<std::vector<int>> ranks_;
  int mine_ = 0;
  bool leads_ = true;
};

// A subtree of a sum whose leaves are all on one host, and no larger one is: what that host gives to the sum.
struct Operand {
  int first, last;  // positions in the order
  int host;
  bool folded() const { return last > first; }  // several ranks' sum, kept wide
};

// From left to right; between them they have every leaf once.
std::vector<Operand> operands_of(const SumOrder& order, const Placement& placement);

// The joins of one operand's own leaves.
std::vector<std::uint8_t> joins_of(const SumOrder& order, const Operand& operand);

}  // namespace lockstep::processes
