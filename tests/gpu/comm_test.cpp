// Thread ranks that share a GPU: every operation gives the bits of thread ranks on the cpu, in the order of streams.
#include "gpu/comm_order.h"
#include "support/every_op.h"

namespace lockstep::tests {
namespace {

class GpuThreads : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

void each_gpu_rank(int ranks, std::int64_t arena_bytes, const std::function<void(Communicator&, GpuRank&)>& body) {
  run_ranks(ranks, [&](std::unique_ptr<Communicator> threads) {
    GpuRank rank(arena_bytes);
    const auto comm = on_stream(std::move(threads), rank.stream());
    body(*comm, rank);
    rank.stream().synchronize();
  });
}

TEST_P(GpuThreads, EveryOperationGivesTheCpusBits) {
  const int ranks = GetParam();
  const auto trials =
      every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1, 1003});
  const auto want = references(trials, ranks);
  each_gpu_rank(ranks, std::int64_t{128} << 20, [&](Communicator& comm, GpuRank& rank) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const TrialBuffers got = run_trial(trials[i], comm, rank.memory(), rank.stream());
      ASSERT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(comm.rank())]), "") << comm.rank();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuThreads, ::testing::Values(1, 2, 3, 5, 8));

class GpuThreadOrder : public GpuThreads {};

TEST_P(GpuThreadOrder, OperationsAndComputeKeepTheirOrder) {
  each_gpu_rank(GetParam(), kOrderArena, expect_order_with_compute);
}
TEST_P(GpuThreadOrder, OperationsRunBesideCompute) { each_gpu_rank(GetParam(), kOrderArena, expect_beside_compute); }
TEST_P(GpuThreadOrder, ManyAreInFlight) { each_gpu_rank(GetParam(), kOrderArena, expect_many_in_flight); }

TEST_P(GpuThreadOrder, GroupsOfAGroupAreOnTheGpuToo) {
  each_gpu_rank(GetParam(), kOrderArena, [](Communicator& comm, GpuRank& rank) {
    const auto pairs = comm.split([](int r) { return Place{r / 2, -r}; }, "pairs");
    EXPECT_EQ(pairs->device(), Device::cuda);
    const Tensor a = rank.take(DType::f32, 1001), b = rank.take(DType::f32, 77);
    fill({.y = a, .value = comm.rank() + 1.0}, rank.stream());
    fill({.y = b, .value = 1}, rank.stream());
    const auto of_pairs = pairs->all_reduce(a), of_all = comm.all_reduce(b);
    of_all->wait();
    of_pairs->wait();
    const int first = comm.rank() / 2 * 2;
    expect_all(a, pairs->size() == 2 ? 2 * first + 3.0 : first + 1.0, rank.stream(), "the pair's sum");
    expect_all(b, comm.size(), rank.stream(), "the sum of all");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuThreadOrder, ::testing::Values(2, 3));

}  // namespace
}  // namespace lockstep::tests
