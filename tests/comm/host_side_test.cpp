// Tensors of the host over NCCL, with thread ranks in NCCL's place; and what its groups tell of deadlines and failures.
#include "comm/nccl/host_side.h"

#include <gmock/gmock.h>

#include "comm/nccl_stand_in.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using Seconds = std::chrono::duration<double>;

struct HostRank {
  Communicator& comm;
  CpuDevice& device;  // in the GPU's place
  Exchange& exchange;
};

void each_host_rank(int ranks, const std::function<void(const HostRank&)>& body,
                    const nccl::HostSideOptions& options = {}) {
  Exchange exchange;
  each_rank(ranks, [&](Communicator& threads) {
    CpuDevice device;
    StandIn library(exchange);
    const nccl::Share share = [&](std::span<const char> mine) {
      std::vector<char> bytes(mine.begin(), mine.end());
      threads.broadcast(Tensor(bytes.data(), DType::i32, Device::cpu, {std::ssize(bytes) / 4}), 0)->wait();
      return bytes;
    };
    const auto comm = nccl::make_host_side(library, {threads.rank(), ranks}, share, device.memory(), options);
    body({*comm, device, exchange});
  });
}

std::string comm_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

class HostSide : public ::testing::TestWithParam<int> {};

TEST_P(HostSide, EveryOperationGivesTheBitsOfThreads) {
  const int ranks = GetParam();
  const auto trials =
      every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1, 303});
  const auto want = references(trials, ranks);
  each_host_rank(ranks,
                 [&](const HostRank& here) {
                   EXPECT_EQ(here.comm.device(), Device::cpu);
                   CpuDevice host;
                   for (std::size_t i = 0; i < trials.size(); ++i) {
                     const TrialBuffers got = run_trial(trials[i], here.comm, host.memory(), host.stream());
                     ASSERT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(here.comm.rank())]), "");
                   }
                 },
                 {.staging_bytes = 1});
}
INSTANTIATE_TEST_SUITE_P(Ranks, HostSide, ::testing::Values(1, 2, 3, 5));

TEST(HostSideMemory, IsWhatItsFunctionsSay) {
  const nccl::HostSideOptions options{.staging_bytes = 4096};
  each_host_rank(
      3,
      [&](const HostRank& here) {
        const Ledger& ledger = here.device.memory().ledger();
        const std::int64_t group = nccl::staging_bytes(3, {.staging_bytes = 4096});
        EXPECT_EQ(ledger.current(Tag::communication), group);
        Row a = row_of(DType::f64, 1000, here.comm.rank()), b = a, small = row_of(DType::i32, 1, 0);
        const Message message{.op = CommOp::all_reduce, .out = a, .in = a};
        EXPECT_EQ(nccl::staged_bytes(message), 16384);                 // in and out, and a power of two
        for (int i = 0; i < 3; ++i) here.comm.start(message)->wait();  // the same memory, again and again
        here.comm.all_reduce(small)->wait();
        EXPECT_EQ(ledger.current(Tag::communication), group + 16384);
        const auto first = here.comm.start(message), second = here.comm.all_reduce(b);
        first->wait();
        second->wait();
        EXPECT_EQ(ledger.current(Tag::communication), group + 2 * 16384);
      },
      options);
  Row in(DType::f32, 3000), out(DType::f32, 1000);
  EXPECT_EQ(nccl::staged_bytes({.op = CommOp::reduce_scatter, .out = out, .in = in}), 16384);
  EXPECT_EQ(nccl::staged_bytes({.op = CommOp::barrier}), 4096);
}

// What saves does so in a thread of its own, while the rank goes on.
TEST(HostSideGroups, AreUsedByTheirOwnThreadsAtOnce) {
  each_host_rank(4, [&](const HostRank& here) {
    const auto all = here.comm.split([](int rank) { return Place{0, rank}; }, "checkpoint");
    const auto pairs = here.comm.split([](int rank) { return Place{rank / 2, -rank}; }, "pairs");
    const auto some = here.comm.split([](int rank) { return Place{rank == 3 ? 0 : -1, 0}; }, "some");
    EXPECT_EQ(all->name(), "checkpoint");
    EXPECT_EQ(pairs->rank(), 1 - here.comm.rank() % 2);
    EXPECT_EQ(some != nullptr, here.comm.rank() == 3);
    const auto sums = [&](Communicator& comm, std::int64_t want) {
      for (int i = 0; i < 30; ++i) {
        std::int64_t value = 1 << here.comm.rank();
        comm.all_reduce(Tensor(&value, DType::i64, Device::cpu, {1}))->wait();
        ASSERT_EQ(value, want);
      }
    };
    std::jthread beside([&] { sums(*all, 15); });
    sums(here.comm, 15);
    sums(*pairs, here.comm.rank() < 2 ? 3 : 12);
  });
}

TEST(HostSideFailure, ARankThatDoesNotComeFailsTheOthersWithinTheDeadline) {
  std::atomic<bool> told = false;
  each_host_rank(2,
                 [&](const HostRank& here) {
                   if (here.comm.rank() == 1) {
                     while (!told) std::this_thread::yield();
                     return;
                   }
                   Row x = row_of(DType::f32, 100, 0);
                   const auto begin = std::chrono::steady_clock::now();
                   const auto pending = here.comm.all_reduce(x);
                   const std::string words = comm_error_of([&] { pending->wait(); });
                   EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 5);
                   EXPECT_THAT(words, HasSubstr("all_reduce of 100 fp32 (sum, canonical): not done within 0.3 s"));
                   EXPECT_EQ(x.bytes(), row_of(DType::f32, 100, 0).bytes());  // nothing half-made is brought back
                   EXPECT_EQ(comm_error_of([&] { pending->wait(); }), words);
                   EXPECT_EQ(comm_error_of([&] { here.comm.barrier(); }), words);
                   EXPECT_EQ(comm_error_of([&] { here.comm.check(); }), words);
                   told = true;
                 },
                 {.deadline_seconds = 0.3});
}

TEST(HostSideDeadline, OfAMessageCountsInPlaceOfTheGroups) {
  each_host_rank(2,
                 [&](const HostRank& here) {
                   std::int64_t value = 1;
                   const Tensor x(&value, DType::i64, Device::cpu, {1});
                   if (here.comm.rank() == 1)
                     std::this_thread::sleep_for(Seconds(0.8));  // longer than the group would wait
                   here.comm.start({.op = CommOp::all_reduce, .out = x, .in = x, .deadline = 20})->wait();
                   EXPECT_EQ(value, 2);
                   const auto begin = std::chrono::steady_clock::now();
                   if (here.comm.rank() == 1) return std::this_thread::sleep_for(Seconds(1));
                   EXPECT_THAT(
                       comm_error_of([&] {
                         here.comm.start({.op = CommOp::all_reduce, .out = x, .in = x, .deadline = 0.1})->wait();
                       }),
                       HasSubstr("not done within 0.1 s"));
                   EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 0.9);
                 },
                 {.deadline_seconds = 0.3});
}

// Nothing is under way in NCCL's place while the ranks wait for a disk: it would fail by the group's deadline.
TEST(HostSideDeadline, LongerThanTheGroupsMeetsOnTheHostFirst) {
  std::mutex mutex;
  std::condition_variable all_came;
  std::map<std::string, int> came;
  constexpr int kRanks = 3;
  nccl::HostSideOptions options{.deadline_seconds = 0.3};
  options.barrier = [&](const std::string& name, double deadline) {
    std::unique_lock lock(mutex);
    EXPECT_EQ(deadline, 20);
    ++came[name];
    all_came.notify_all();
    if (!all_came.wait_for(lock, Seconds(deadline), [&] { return came[name] == kRanks; })) throw CommError("nobody");
  };
  each_host_rank(
      kRanks,
      [&](const HostRank& here) {
        std::int64_t value = 1, other = 1;
        const Tensor x(&value, DType::i64, Device::cpu, {1}), y(&other, DType::i64, Device::cpu, {1});
        const bool slow = here.comm.rank() == kRanks - 1;
        if (slow) std::this_thread::sleep_for(Seconds(0.8));
        const auto first = here.comm.start({.op = CommOp::all_reduce, .out = x, .in = x, .deadline = 20});
        EXPECT_TRUE(slow || !first->done());
        const auto second = here.comm.all_reduce(y);  // does not overtake it
        second->wait();
        first->wait();
        EXPECT_EQ(value, kRanks);
        EXPECT_EQ(other, kRanks);
      },
      options);
  EXPECT_EQ(came, (std::map<std::string, int>{{"world 1", kRanks}}));  // that message, and no other
}

TEST(HostSideDeadline, ABarrierThatFailsIsTheMessagesFailureEachTime) {
  nccl::HostSideOptions options{.deadline_seconds = 0.3};
  options.barrier = [](const std::string&, double) { throw CommError("rank 1 is gone"); };
  each_host_rank(
      2,
      [&](const HostRank& here) {
        std::int64_t value = 1;
        const Tensor x(&value, DType::i64, Device::cpu, {1});
        const auto pending = here.comm.start({.op = CommOp::all_reduce, .out = x, .in = x, .deadline = 20});
        for (int i = 0; i < 2; ++i) EXPECT_EQ(comm_error_of([&] { pending->wait(); }), "rank 1 is gone");
        EXPECT_EQ(value, 1);
      },
      options);
}

TEST(NcclFailure, IsToldByCheckAfterWaitHasReturned) {
  std::atomic<int> there = 0;
  each_nccl_rank(2, [&](const Here& here) {
    Row x = row_of(DType::f32, 100, here.comm.rank());
    here.comm.all_reduce(x)->wait();
    EXPECT_EQ(comm_error_of([&] { here.comm.check(); }), "");
    ++there;
    while (there < 2) std::this_thread::yield();
    here.exchange.cut = true;
    EXPECT_THAT(comm_error_of([&] { here.comm.check(); }), HasSubstr("the wire is cut"));
  });
}

// Else the error would be told when the deadline of the last operation has passed.
TEST(NcclFailure, AnErrorIsNotHeldUpByWhatIsUnderWay) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> told = false;
  each_nccl_rank(2,
                 [&](const Here& here) {
                   if (here.comm.rank() == 1) {
                     while (!told) std::this_thread::yield();
                     return;
                   }
                   Row x = row_of(DType::f32, 100, 0);
                   const auto group = here.comm.size();
                   try {
                     const auto pending = here.comm.all_reduce(x);
                     throw std::runtime_error(fmt::format("an error of its own, in {}", group));
                   } catch (const std::runtime_error& error) {
                     EXPECT_STREQ(error.what(), "an error of its own, in 2");
                   }
                   EXPECT_THAT(comm_error_of([&] { here.comm.barrier(); }),
                               HasSubstr("because of an error of its own"));
                   told = true;
                 },
                 {.deadline_seconds = 10});
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 5);
}

}  // namespace
}  // namespace lockstep::tests
