// The same bits as thread ranks have, in every order of sums, whichever hosts the ranks are on and however a message is
// cut (the program is run with several hosts and slots).
#include "comm/parts.h"
#include "comm/ranks.h"
#include "support/recipes.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kElements = 1003;

Row wild(DType dtype, int rank) {
  if (!is_float(dtype)) return Row(dtype, kElements, [&](std::int64_t i) { return whole(rank, i); });
  const Recipe recipe = magnitudes(-20, dtype == DType::f16 ? 12 : 20);
  return Row(dtype, kElements, [&](std::int64_t i) {  // minus zeros too: their sum is one
    return i % 97 == 5 ? -0.0 : round_to(dtype, recipe(static_cast<std::uint64_t>(rank) + 17, i));
  });
}

using Bytes = std::vector<std::byte>;

// What a rank has after one reduction of each kind, in one row of bytes.
Bytes results(Communicator& comm, DType dtype, Reducing how) {
  const int ranks = comm.size(), rank = comm.rank();
  Row all = wild(dtype, rank), in = all, root(dtype, kElements);
  comm.all_reduce(all, how)->wait();
  std::vector<std::int64_t> counts;  // uneven, some of them nothing
  for (int r = 0; r < ranks; ++r) counts.push_back(r % 3 == 1 ? 0 : kElements / (2 * ranks) + r);
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  counts.back() += kElements - sum;
  Row part(dtype, counts[static_cast<std::size_t>(rank)]);
  comm.reduce_scatter(part, in, how, counts)->wait();
  const int end = ranks / 2;
  comm.reduce(rank == end ? static_cast<Tensor>(root) : Tensor{}, in, end, how)->wait();
  Bytes bytes(all.bytes().begin(), all.bytes().end());
  bytes.insert(bytes.end(), part.bytes().begin(), part.bytes().end());
  bytes.insert(bytes.end(), root.bytes().begin(), root.bytes().end());
  return bytes;
}

class Bits : public ::testing::TestWithParam<std::tuple<int, Algorithm>> {};

TEST_P(Bits, AreThoseOfThreads) {
  const auto [ranks, algorithm] = GetParam();
  each_rank(ranks, [ranks = ranks, algorithm = algorithm](Communicator& comm) {
    for (const DType dtype : kTypes)
      for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
        if (reduction == Reduction::mean && !is_float(dtype)) continue;
        const Reducing how{reduction, algorithm};
        Bytes want;
        run_ranks(ranks, [&](std::unique_ptr<Communicator> threads) {
          Bytes bytes = results(*threads, dtype, how);
          if (threads->rank() == comm.rank()) want = std::move(bytes);
        });
        EXPECT_EQ(results(comm, dtype, how) == want, true)
            << name_of(dtype) << ' ' << name_of(reduction) << ' ' << name_of(algorithm) << " on rank " << comm.rank();
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Bits,
                         ::testing::Combine(::testing::Values(3, 5, 7, 8),
                                            ::testing::Values(Algorithm::canonical, Algorithm::ring, Algorithm::tree)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace lockstep::tests
