#include "comm/processes/placement.h"

#include <algorithm>
#include <map>

namespace lockstep::processes {

Placement::Placement(const std::vector<int>& hosts, int rank) {
  std::map<int, int> number;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const int host = number.emplace(hosts[r], static_cast<int>(number.size())).first->second;
    if (host == this->hosts()) ranks_.emplace_back();
    host_.push_back(host);
    local_rank_.push_back(static_cast<int>(ranks_[static_cast<std::size_t>(host)].size()));
    ranks_[static_cast<std::size_t>(host)].push_back(static_cast<int>(r));
  }
  mine_ = host_of(rank);
  leads_ = leader(mine_) == rank;
}

std::vector<Operand> operands_of(const SumOrder& order, const Placement& placement) {
  constexpr int kMixed = -1;
  std::vector<Operand> found, stack;
  const auto keep = [&](const Operand& node) {
    if (node.host != kMixed) found.push_back(node);
  };
  for (int i = 0; i < static_cast<int>(order.ranks.size()); ++i) {
    stack.push_back({i, i, placement.host_of(order.ranks[static_cast<std::size_t>(i)])});
    for (int join = 0; join < order.joins[static_cast<std::size_t>(i)]; ++join) {
      const Operand right = stack.back();
      stack.pop_back();
      Operand& left = stack.back();
      if (left.host != right.host || left.host == kMixed) {
        keep(left);
        keep(right);
        left.host = kMixed;
      }
      left.last = right.last;
    }
  }
  keep(stack.front());
  std::sort(found.begin(), found.end(), [](const Operand& a, const Operand& b) { return a.first < b.first; });
  return found;
}

std::vector<std::uint8_t> joins_of(const SumOrder& order, const Operand& operand) {
  std::vector<std::uint8_t> joins(order.joins.begin() + operand.first, order.joins.begin() + operand.last + 1);
  int made = 0;
  for (std::size_t i = 0; i + 1 < joins.size(); ++i) made += joins[i];
  joins.back() = static_cast<std::uint8_t>(operand.last - operand.first - made);  // the rest join it to others
  return joins;
}

}  // namespace lockstep::processes
