// Which ranks hold one copy of the state between them, and which hold the same shard of other copies.
#include "parallel/zero_groups.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "parallel/members.h"

namespace lockstep::tests {
namespace {

TEST(ZeroGroups, AreConsecutiveRanksOfOneCopyAndThoseOfTheSameShard) {
  struct Case {
    int ranks, shard;
  };
  for (const auto& [ranks, shard] : {Case{3, 3}, {5, 5}, {4, 2}, {6, 2}, {6, 3}, {15, 5}})
    each_rank(ranks, [ranks = ranks, shard = shard](Communicator& world) {
      ZeroGroups groups(world, {.dp = ranks, .zero = 1, .shard = shard});
      const int rank = world.rank();
      EXPECT_TRUE(groups.sharded());
      EXPECT_EQ(groups.shard().index, rank % shard);
      EXPECT_EQ(groups.shard().count, shard);
      EXPECT_EQ(&groups.all(), &world);
      Members copy, same;
      for (int r = 0; r < ranks; ++r) {
        if (r / shard == rank / shard) copy.push_back(r);
        if (r % shard == rank % shard) same.push_back(r);
      }
      EXPECT_EQ(members(world, groups.sharers()), copy);
      ASSERT_EQ(groups.across() != nullptr, shard < ranks);
      if (!groups.across()) return;
      EXPECT_EQ(members(world, *groups.across()), same);
    });
}

TEST(ZeroGroups, HoldEverythingEachWithoutZero) {
  each_rank(3, [](Communicator& world) {
    ZeroGroups groups(world, {.dp = 3});
    EXPECT_FALSE(groups.sharded());
    EXPECT_EQ(groups.shard().count, 1);
    EXPECT_EQ(groups.across(), nullptr);
  });
}

}  // namespace
}  // namespace lockstep::tests
