// Which ranks a group has.
#pragma once
#include "comm/ranks.h"

namespace lockstep::tests {

using Members = std::vector<int>;

// The ranks of the world that are in a group, in their order there.
inline Members members(Communicator& world, Communicator& group) {
  Row own(DType::i32, 1, [&](std::int64_t) { return world.rank(); }), all(DType::i32, group.size());
  if (group.size() == 1) return {world.rank()};
  group.all_gather(all, own)->wait();
  Members ranks;
  for (std::int64_t i = 0; i < all.elements(); ++i) ranks.push_back(static_cast<int>(all[i]));
  return ranks;
}

}  // namespace lockstep::tests
