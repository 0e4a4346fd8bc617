// The order of sums: canonical bits are those of one tree whatever the cut, the grouping or the operation.
#include <bit>

#include "comm/parts.h"
#include "comm/ranks.h"
#include "comm/sum_order.h"
#include "support/recipes.h"

namespace lockstep::tests {
namespace {

// Elements of magnitudes from 2^-20 to 2^20 in either sign, so that every other order of sums gives other bits.
Row wild(DType dtype, std::int64_t elements, int rank) {
  const Recipe recipe = magnitudes(-20, dtype == DType::f16 ? 12 : 20);
  return Row(dtype, elements,
             [&](std::int64_t i) { return round_to(dtype, recipe(static_cast<std::uint64_t>(rank) + 17, i)); });
}

// The tree, as the design states it.
template <class T>
T tree(const std::function<T(int)>& x, int lo, int hi) {
  if (hi - lo == 1) return x(lo);
  const int mid = lo + static_cast<int>(std::bit_ceil(static_cast<unsigned>(hi - lo))) / 2;
  return tree(x, lo, mid) + tree(x, mid, hi);
}

double canonical(DType dtype, int ranks, std::int64_t i, bool mean) {
  if (dtype == DType::f64) {
    const double sum = tree<double>([&](int rank) { return wild(dtype, i + 1, rank)[i]; }, 0, ranks);
    return mean ? sum / ranks : sum;
  }
  const float sum = tree<float>([&](int r) { return static_cast<float>(wild(dtype, i + 1, r)[i]); }, 0, ranks);
  return round_to(dtype, mean ? sum / static_cast<float>(ranks) : sum);
}

class Canonical : public ::testing::TestWithParam<int> {};

TEST_P(Canonical, IsOneTreeInTheAccumulatorRoundedOnce) {
  const int ranks = GetParam();
  constexpr std::int64_t n = 157;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const bool mean : {false, true}) {
      std::vector<double> want;
      for (std::int64_t i = 0; i < n; ++i) want.push_back(canonical(dtype, ranks, i, mean));
      each_rank(ranks, [&](Communicator& comm) {
        const Reducing how{.reduction = mean ? Reduction::mean : Reduction::sum};
        Row x = wild(dtype, n, comm.rank()), in = x, root(dtype, n);
        comm.all_reduce(x, how)->wait();
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(x[i], want[static_cast<std::size_t>(i)]) << i;
        comm.reduce(root, in, 0, how)->wait();
        if (comm.rank() == 0) {
          EXPECT_EQ(root.bytes(), x.bytes());
        }
        // Cut by rank, and cut otherwise: the same bits.
        const Parts parts(n, ranks);
        std::vector<std::int64_t> counts;
        for (int r = 0; r < ranks; ++r) counts.push_back(parts.size(r));
        Row scattered(dtype, parts.size(comm.rank())), whole_again(dtype, n);
        comm.reduce_scatter(scattered, in, how, counts)->wait();
        comm.all_gather(whole_again, scattered, counts)->wait();
        EXPECT_EQ(whole_again.bytes(), x.bytes());
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Canonical, ::testing::Values(2, 3, 5, 6, 7, 8, 12));

// Groups of 2^k consecutive ranks first, then across the groups.
class Composed : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Composed, GroupsOfAPowerOfTwoFirstChangeNoBit) {
  const auto [ranks, of] = GetParam();
  each_rank(ranks, [of = of](Communicator& comm) {
    const auto inner = comm.split([&](int rank) { return Place{rank / of, rank}; }, "inner");
    const auto outer = comm.split([&](int rank) { return Place{rank % of, rank}; }, "outer");
    for (const DType dtype : {DType::f64, DType::f32}) {  // narrower types are rounded in between
      Row once = wild(dtype, 4099, comm.rank()), twice = once;
      comm.all_reduce(once)->wait();
      inner->all_reduce(twice)->wait();
      outer->all_reduce(twice)->wait();
      EXPECT_EQ(once.bytes(), twice.bytes());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, Composed,
                         ::testing::Values(std::pair(8, 4), std::pair(8, 2), std::pair(12, 4), std::pair(7, 1),
                                           std::pair(6, 2)));

// The same elements under another order: proof that the elements above tell orders apart.
TEST(Orders, DifferInBitsAndAreDeterministic) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree})
    each_rank(7, [&](Communicator& comm) {
      Row canonical = wild(DType::f32, 4099, comm.rank()), a = canonical, b = canonical;
      comm.all_reduce(canonical)->wait();
      comm.all_reduce(a, {.algorithm = algorithm})->wait();
      comm.all_reduce(b, {.algorithm = algorithm})->wait();
      EXPECT_EQ(a.bytes(), b.bytes());
      EXPECT_NE(a.bytes(), canonical.bytes());
    });
}

// Recursive halving as it is done with messages, each rank holding its own sums.
std::vector<float> halved(int ranks, std::int64_t i) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  std::vector<float> sum;
  for (int rank = 0; rank < ranks; ++rank) sum.push_back(static_cast<float>(wild(DType::f32, i + 1, rank)[i]));
  for (int rank = power; rank < ranks; ++rank)
    sum[static_cast<std::size_t>(rank - power)] += sum[static_cast<std::size_t>(rank)];
  for (int distance = power / 2; distance > 0; distance /= 2) {
    const std::vector<float> before = sum;
    for (int rank = 0; rank < power; ++rank)
      sum[static_cast<std::size_t>(rank)] =
          before[static_cast<std::size_t>(rank)] + before[static_cast<std::size_t>(rank ^ distance)];
  }
  return sum;
}

TEST(Orders, AreThoseOfTheirAlgorithms) {
  constexpr std::int64_t n = 101;
  for (const int ranks : {2, 3, 5, 6, 8})
    each_rank(ranks, [&](Communicator& comm) {
      Row ring = wild(DType::f32, n, comm.rank()), halving = ring;
      comm.all_reduce(ring, {.algorithm = Algorithm::ring})->wait();
      comm.all_reduce(halving, {.algorithm = Algorithm::tree})->wait();
      const Parts parts(n, ranks);
      for (int piece = 0; piece < ranks; ++piece)
        for (std::int64_t i = parts.begin(piece); i < parts.begin(piece) + parts.size(piece); ++i) {
          float sum = 0;
          for (int hop = 1; hop <= ranks; ++hop) {
            const auto x = static_cast<float>(wild(DType::f32, i + 1, (piece + hop) % ranks)[i]);
            sum = hop == 1 ? x : sum + x;
          }
          ASSERT_EQ(ring[i], sum) << ranks << " ranks, element " << i;
          const std::vector<float> by_rank = halved(ranks, i);
          ASSERT_EQ(halving[i], by_rank[0]);
        }
    });
}

TEST(Orders, HaveEveryRankOnce) {
  for (const CommOp op : {CommOp::all_reduce, CommOp::reduce_scatter, CommOp::reduce})
    for (const Algorithm algorithm : kAlgorithms)
      for (int ranks = 1; ranks <= 65; ++ranks)
        for (const int piece : {0, ranks / 2, ranks - 1}) {
          const SumOrder order = sum_order(op, algorithm, ranks, piece);
          std::vector<int> times(static_cast<std::size_t>(ranks));
          int height = 0;
          for (std::size_t i = 0; i < order.ranks.size(); ++i) {
            ++times[static_cast<std::size_t>(order.ranks[i])];
            height += 1 - order.joins[i];
            ASSERT_GE(height, 1);
          }
          EXPECT_EQ(height, 1);
          EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(ranks), 1));
        }
}

TEST(Orders, SumsThatEndOutsideOfATypeAreInfiniteAndNansStay) {
  each_rank(3, [&](Communicator& comm) {
    Row x(DType::f16, 3, [&](std::int64_t i) { return i == 0 ? 40000.0 : i == 1 && comm.rank() == 1 ? NAN : 1.0; });
    Row largest = x, cancelled(DType::f16, 1, [&](std::int64_t) { return comm.rank() == 2 ? -60000.0 : 40000.0; });
    comm.all_reduce(x)->wait();
    EXPECT_EQ(x[0], INFINITY);
    EXPECT_TRUE(std::isnan(x[1]));
    EXPECT_EQ(x[2], 3);
    comm.all_reduce(largest, {.reduction = Reduction::max})->wait();
    EXPECT_TRUE(std::isnan(largest[1]));
    comm.all_reduce(cancelled)->wait();
    EXPECT_EQ(cancelled[0], 20000);  // more than the type holds on the way, which is wide
  });
}

}  // namespace
}  // namespace lockstep::tests
