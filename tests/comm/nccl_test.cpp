// The NCCL backend's own part (steps, order, failure) over thread ranks that stand in for the library: what a GPU and
// NCCL itself add is in tests/gpu/nccl_test.cpp.
#include "comm/nccl_stand_in.h"

#include "support/several_tensors.h"

namespace lockstep::tests {
namespace {

class NcclSteps : public ::testing::TestWithParam<int> {};

// With so little staging that every sum goes in many fragments.
TEST_P(NcclSteps, EveryOperationGivesTheBitsOfThreads) {
  const int ranks = GetParam();
  const auto trials =
      every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1, 303});
  const auto want = references(trials, ranks);
  each_nccl_rank(ranks,
                 [&](const Here& here) {
                   for (std::size_t i = 0; i < trials.size(); ++i) {
                     const TrialBuffers got = run_trial(trials[i], here.comm, here.cpu.memory(), here.cpu.stream());
                     ASSERT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(here.comm.rank())]), "");
                   }
                 },
                 {.staging_bytes = 1});
}

// Gathers of them are one group: the stand-in refuses a call before the last one has settled.
TEST_P(NcclSteps, SeveralTensorsInOneCallAreWhatCallsOfTheirOwnMake) {
  each_nccl_rank(GetParam(), [](const Here& here) { expect_several_as_apart(here.comm, kAlgorithms); },
                 {.staging_bytes = 1 << 14});
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclSteps, ::testing::Values(1, 2, 3, 5));

TEST(NcclBackend, StagingIsWhatItsFunctionSays) {
  for (const int ranks : {1, 2, 7}) {
    const nccl::Options options{.staging_bytes = 12345};
    each_nccl_rank(
        ranks,
        [&](const Here& here) {
          EXPECT_EQ(here.cpu.memory().ledger().current(Tag::communication), nccl::staging_bytes(ranks, options));
        },
        options);
  }
  EXPECT_EQ(nccl::staging_bytes(1, {}), 0);
  EXPECT_EQ(nccl::staging_bytes(2, {}), 16 << 20);
  EXPECT_GE(nccl::staging_bytes(64, {.staging_bytes = 1}), 64 * 64 * 128);  // the ids of all pairs
}

// A receive that is posted early holds up neither what is sent nor what is received after it.
TEST(NcclBackend, AMessageIsInNoOrderWithAnythingElse) {
  each_nccl_rank(3, [&](const Here& here) {
    Communicator& comm = here.comm;
    Row late(DType::i32, 5), a = row_of(DType::i32, 5, comm.rank()), b(DType::i32, 5);
    if (comm.rank() == 0) {
      const auto posted = comm.recv(late, 1);
      comm.send(a, 1)->wait();
      comm.send(a, 2)->wait();
      comm.all_reduce(b)->wait();
      posted->wait();
      EXPECT_EQ(late.bytes(), row_of(DType::i32, 5, 1).bytes());
    } else {
      const auto here_too = comm.recv(b, 0);
      here_too->wait();
      EXPECT_EQ(b.bytes(), row_of(DType::i32, 5, 0).bytes());
      comm.all_reduce(late)->wait();
      if (comm.rank() == 1) comm.send(a, 0)->wait();
    }
  });
}

TEST(NcclBackend, MessagesOfOnePairKeepTheirOrder) {
  each_nccl_rank(2, [&](const Here& here) {
    Communicator& comm = here.comm;
    std::vector<Row> rows;
    for (int i = 0; i < 20; ++i)
      rows.push_back(comm.rank() == 0 ? row_of(DType::i32, i * 91, i) : Row(DType::i32, i * 91));
    std::vector<std::unique_ptr<Pending>> pending;
    for (Row& row : rows) pending.push_back(comm.rank() == 0 ? comm.send(row, 1) : comm.recv(row, 0));
    for (std::size_t i = pending.size(); i-- > 0;) pending[i]->wait();
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(rows[static_cast<std::size_t>(i)].bytes(), row_of(DType::i32, i * 91, i).bytes());
  });
}

TEST(NcclBackend, GroupsAreWhatTheirColorsSay) {
  each_nccl_rank(6, [&](const Here& here) {
    Communicator& comm = here.comm;
    const auto rows = comm.split([](int rank) { return Place{rank / 3, rank}; }, "rows");
    const auto columns = comm.split([](int rank) { return Place{rank % 3, -rank}; }, "columns");  // backwards
    const auto some = comm.split([](int rank) { return Place{rank < 2 ? 0 : -1, 0}; }, "some");
    const auto alone = comm.split([](int rank) { return Place{rank, 0}; }, "alone");
    EXPECT_EQ(rows->name(), "rows");
    EXPECT_EQ(rows->rank(), comm.rank() % 3);
    EXPECT_EQ(columns->rank(), comm.rank() < 3 ? 1 : 0);
    EXPECT_EQ(some != nullptr, comm.rank() < 2);
    EXPECT_EQ(alone->size(), 1);
    const auto mine = [&](std::int64_t) { return static_cast<double>(1 << comm.rank()); };
    Row a(DType::i32, 100, mine), b(DType::i32, 700, mine), c(DType::i32, 3, mine), d(DType::i32, 3, mine);
    const auto wait_a = rows->all_reduce(a), wait_b = columns->all_reduce(b), wait_c = comm.all_reduce(c);
    alone->all_reduce(d)->wait();
    wait_c->wait();
    wait_b->wait();
    wait_a->wait();
    EXPECT_EQ(a[99], comm.rank() < 3 ? 7 : 56);
    EXPECT_EQ(b[699], 9 << (comm.rank() % 3));
    EXPECT_EQ(c[0], 63);
    EXPECT_EQ(d[0], 1 << comm.rank());
    Row e(DType::i32, 2, mine);
    if (some) {
      some->all_reduce(e)->wait();
      EXPECT_EQ(e[0], 3);
    }
    comm.barrier()->wait();
  });
}

TEST(NcclBackend, WhatIsStartedEndsWithoutAnybodyAsking) {
  each_nccl_rank(3, [&](const Here& here) {
    Row x(DType::f64, 1000, [](std::int64_t) { return 1.0; });
    const auto pending = here.comm.all_reduce(x);
    // On each rank the ids, the exchange and the sums: the threads that watch move them on.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (here.exchange.settled < 9 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(here.exchange.settled, 9);
    pending->wait();
    EXPECT_EQ(x[999], 3);
  });
}

TEST(NcclBackend, SetUpWithoutAllRanksFailsWithinTheDeadline) {
  Exchange exchange;
  StandIn library(exchange);
  CpuDevice cpu;
  const nccl::Share mine = [](std::span<const char> id) { return std::vector<char>(id.begin(), id.end()); };
  try {
    nccl::make_communicator(library, {0, 2}, mine, cpu.memory(), cpu.stream(), {.deadline_seconds = 0.2});
    FAIL() << "one of two ranks is a world";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("set-up of 'world': not done within 0.2 s"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("; NCCL_DEBUG=INFO shows what NCCL waits for"), std::string::npos)
        << error.what();
  }
}

TEST(NcclBackend, ARankThatDoesNotComeFailsTheOthersWithinTheDeadline) {
  std::atomic<int> told = 0;
  each_nccl_rank(
      3,
      [&](const Here& here) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        if (here.comm.rank() == 2) {
          while (told < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
          return;
        }
        Row x = row_of(DType::f32, 100, here.comm.rank());
        const auto begin = std::chrono::steady_clock::now();
        std::string words, again;
        const auto pending = here.comm.all_reduce(x);
        try {
          pending->wait();
        } catch (const CommError& error) {
          words = error.what();
        }
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
        EXPECT_NE(words.find("#1 of 'world', all_reduce of 100 fp32 (sum, canonical)"), std::string::npos) << words;
        const bool first = words.find("not done within 0.3 s") != std::string::npos;
        EXPECT_TRUE(first || words.find("went away") != std::string::npos) << words;  // or the other was, and went
        EXPECT_TRUE(pending->done());
        for (int call = 0; call < 2; ++call) try {
            call ? pending->wait() : (void)here.comm.barrier();
            ADD_FAILURE() << "a failed group goes on";
          } catch (const CommError& error) {
            EXPECT_EQ(error.what(), words);
          }
        ++told;
      },
      {.deadline_seconds = 0.3});
  EXPECT_EQ(told, 2);
}

TEST(NcclBackend, AFailureThatNcclFindsIsToldByTheNextCall) {
  std::atomic<int> there = 0;
  each_nccl_rank(2, [&](const Here& here) {
    Row x = row_of(DType::f32, 100, here.comm.rank());
    const auto pending = here.comm.all_reduce(x);
    pending->wait();
    ++there;
    while (there < 2) std::this_thread::yield();
    here.exchange.cut = true;
    try {
      pending->wait();
      ADD_FAILURE() << "nothing was said";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("the wire is cut"), std::string::npos) << error.what();
      EXPECT_TRUE(error.secondary());
    }
  });
}

TEST(NcclBackend, RoomThatDoesNotFitWhatComesIsAFailure) {
  each_nccl_rank(2,
                 [&](const Here& here) {
                   Row in = row_of(DType::f32, 4, here.comm.rank()), out(DType::f32, here.comm.rank() == 0 ? 5 : 4);
                   try {
                     here.comm.all_to_all(out, in, {2, 2})->wait();
                     EXPECT_EQ(here.comm.rank(), 1);
                   } catch (const CommError& error) {
                     if (here.comm.rank() == 0) {
                       EXPECT_NE(std::string(error.what()).find("room for 5 elements"), std::string::npos)
                           << error.what();
                     }
                   }
                 },
                 {.deadline_seconds = 0.5});
}

}  // namespace
}  // namespace lockstep::tests
