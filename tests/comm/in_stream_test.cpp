// Thread ranks that compute in streams: the operations of a group in a stream of its own do what those between threads
// do. (On the cpu, where a stream is always idle: what a GPU adds is in tests/gpu/comm_test.cpp.)
#include <atomic>
#include <thread>

#include "support/devices.h"
#include "support/every_op.h"

namespace lockstep::tests {
namespace {

class InStream : public ::testing::TestWithParam<int> {};

TEST_P(InStream, EveryOperationGivesTheBitsOfThreads) {
  const int ranks = GetParam();
  const auto trials =
      every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1, 1003});
  const auto want = references(trials, ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> threads) {
    CpuDevice cpu;
    const auto comm = on_stream(std::move(threads), cpu.stream());
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const TrialBuffers got = run_trial(trials[i], *comm, cpu.memory(), cpu.stream());
      ASSERT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(comm->rank())]), "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, InStream, ::testing::Values(1, 2, 3, 5));

// What no thread asks for is still given to the stream, as soon as the last rank has come.
TEST(InStreams, TheLastToComeNeedsNobodysHelp) {
  std::atomic<int> started = 0;
  run_ranks(3, [&](std::unique_ptr<Communicator> threads) {
    CpuDevice cpu;
    const auto comm = on_stream(std::move(threads), cpu.stream());
    Row x(DType::f32, 300007, [](std::int64_t) { return 1.0; });
    std::vector<std::unique_ptr<Pending>> chain;
    for (int i = 0; i < 8; ++i) chain.push_back(comm->all_reduce(x));
    ++started;
    while (started < 3) std::this_thread::yield();
    EXPECT_EQ(x[300006], 6561);  // 3^8
    for (auto& one : chain) one->wait();
  });
}

TEST(InStreams, GroupsSplitFromItAreOfThatStreamToo) {
  run_ranks(6, [&](std::unique_ptr<Communicator> threads) {
    CpuDevice cpu;
    const auto comm = on_stream(std::move(threads), cpu.stream());
    const auto rows = comm->split([](int rank) { return Place{rank / 3, rank}; }, "rows");
    Row x(DType::i32, 1000, [&](std::int64_t) { return static_cast<double>(1 << comm->rank()); }), y = x;
    const auto of_rows = rows->all_reduce(x), of_all = comm->all_reduce(y);
    of_all->wait();
    of_rows->wait();
    EXPECT_EQ(x[999], comm->rank() < 3 ? 7 : 56);
    EXPECT_EQ(y[999], 63);
  });
}

TEST(InStreams, ARankThatDoesNotComeIsNamed) {
  std::atomic<int> told = 0;
  run_ranks(3,
            [&](std::unique_ptr<Communicator> threads) {
              CpuDevice cpu;
              const auto comm = on_stream(std::move(threads), cpu.stream());
              Row x = row_of(DType::f32, 10, comm->rank());
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
              if (comm->rank() == 1) {
                while (told < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
                return;
              }
              try {
                comm->all_reduce(x)->wait();
              } catch (const CommError& error) {
                EXPECT_NE(std::string(error.what()).find("rank 1 has not come within 0.1 s"), std::string::npos)
                    << error.what();
                ++told;
              }
            },
            {.deadline_seconds = 0.1});
  EXPECT_EQ(told, 2);
}

TEST(InStreams, RanksThatComputeInStreamsAndRanksThatDoNotAreAMismatch) {
  const auto body = [](std::unique_ptr<Communicator> threads) {
    CpuDevice cpu;
    const auto comm = threads->rank() == 1 ? on_stream(std::move(threads), cpu.stream()) : std::move(threads);
    comm->barrier()->wait();
  };
  try {
    run_ranks(2, body);
    FAIL() << "they met";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("some ranks compute in streams"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::tests
