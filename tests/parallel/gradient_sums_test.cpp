// Sums over all ranks of which each gets its shard: against plain sums, in the order in which they were started.
#include "parallel/gradient_sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/ranks.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSummedElements = 60;
constexpr int kSums = 4;

LayoutSpec sharded_over(int ranks, int shard) {
  return {.dp = ranks, .zero = shard > 1 ? 1 : 0, .shard = shard > 1 ? shard : 0};
}

TEST(GradientSums, GiveEachRankItsShardInTheOrderStarted) {
  struct Case {
    int ranks, shard;
  };
  for (const auto& [ranks, shard] : {Case{1, 1}, {3, 1}, {5, 1}, {3, 3}, {5, 5}, {4, 2}, {6, 3}, {6, 2}})
    for (const bool overlap : {false, true})
      each_rank(ranks, [&, ranks = ranks, shard = shard](Communicator& all) {
        ZeroGroups groups(all, sharded_over(ranks, shard));
        GradientSums sums(groups, Algorithm::canonical, overlap);
        std::vector<Row> in, out;
        for (int k = 0; k < kSums; ++k) {
          in.push_back(row_of(DType::f32, kSummedElements, all.rank() + k));
          out.emplace_back(DType::f32, kSummedElements / shard);
        }
        std::vector<int> ended;
        for (int k = 0; k < kSums; ++k)
          sums.start({.in = in[k], .out = out[k], .after = [&ended, k] { ended.push_back(k); }});
        sums.settle(1);
        EXPECT_EQ(ended, overlap ? (std::vector{0, 1, 2}) : (std::vector{0, 1, 2, 3}));
        sums.settle();
        EXPECT_EQ(ended, (std::vector{0, 1, 2, 3}));
        for (int k = 0; k < kSums; ++k)
          for (std::int64_t i = 0; i < kSummedElements / shard; ++i) {
            double want = 0;
            for (int r = 0; r < ranks; ++r) want += whole(r + k, all.rank() % shard * (kSummedElements / shard) + i);
            ASSERT_EQ(out[k][i], want) << ranks << " ranks, shards of " << shard << ": sum " << k << ", " << i;
          }
      });
}

TEST(GradientSums, HaveShardsOfUnequalSizes) {
  each_rank(3, [](Communicator& all) {
    ZeroGroups groups(all, sharded_over(3, 3));
    GradientSums sums(groups, Algorithm::canonical, true);
    const Communicator::Counts counts{7, 0, 13};
    const std::int64_t begin = all.rank() == 2 ? 7 : 0;
    Row in = row_of(DType::f32, 20, all.rank()), out(DType::f32, counts[all.rank()]);
    sums.start({.in = in, .out = out, .counts = counts});
    sums.settle();
    for (std::int64_t i = 0; i < out.elements(); ++i)
      ASSERT_EQ(out[i], whole(0, begin + i) + whole(1, begin + i) + whole(2, begin + i));
  });
}

// Copies of a power of two of ranks: the order of one canonical sum over all of them.
TEST(GradientSums, OfSeveralCopiesEqualOneSumBitForBit) {
  const auto wide = [](int rank, std::int64_t i) { return std::ldexp(whole(rank, i) + 0.1, (rank * 5 + i) % 23 - 11); };
  each_rank(6, [&](Communicator& all) {
    ZeroGroups groups(all, sharded_over(6, 2));
    GradientSums sums(groups, Algorithm::canonical, true);
    Row in(DType::f32, kSummedElements, [&](std::int64_t i) { return wide(all.rank(), i); }), at_once = in;
    Row out(DType::f32, kSummedElements / 2);
    sums.start({.in = in, .out = out});
    sums.settle();
    all.all_reduce(at_once)->wait();
    for (std::int64_t i = 0; i < out.elements(); ++i)
      ASSERT_EQ(out[i], at_once[all.rank() % 2 * out.elements() + i]) << i;
  });
}

}  // namespace
}  // namespace lockstep::tests
