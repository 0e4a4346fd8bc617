// Operations in flight: several at once, waited for in any order, done by whoever waits; and groups within groups.
#include <atomic>
#include <thread>

#include "comm/ranks.h"

namespace lockstep::tests {
namespace {

double sum_over(int ranks, std::int64_t i) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += whole(rank, i);
  return sum;
}

TEST(InFlight, SeveralAreWaitedForInAnyOrder) {
  constexpr int kRanks = 4, kOps = 9;
  each_rank(kRanks, [&](Communicator& comm) {
    std::vector<Row> rows;
    for (int op = 0; op < kOps; ++op) rows.push_back(row_of(DType::f32, 30011 * (op % 3), comm.rank()));
    std::vector<std::unique_ptr<Pending>> pending;
    for (Row& row : rows) pending.push_back(comm.all_reduce(row));
    for (int i = 0; i < kOps; ++i) pending[static_cast<std::size_t>((i * 4 + comm.rank()) % kOps)]->wait();
    for (const Row& row : rows)
      for (std::int64_t i = 0; i < row.elements(); i += 101) ASSERT_EQ(row[i], sum_over(kRanks, i));
    for (auto& one : pending) {
      EXPECT_TRUE(one->done());
      one->wait();  // again: nothing
    }
  });
}

// A later operation sees what an earlier one of the same group wrote, without a wait in between.
TEST(InFlight, OneAfterTheOther) {
  each_rank(3, [&](Communicator& comm) {
    for (const std::int64_t n : {std::int64_t{5}, std::int64_t{700001}}) {
      Row x(DType::f64, n, [](std::int64_t) { return 1.0; });
      std::vector<std::unique_ptr<Pending>> chain;
      for (int i = 0; i < 10; ++i) chain.push_back(comm.all_reduce(x));
      chain.back()->wait();
      for (std::int64_t i = 0; i < n; i += 997) ASSERT_EQ(x[i], 59049);  // 3^10
    }
  });
}

TEST(InFlight, AskingIsEnoughForAnOperationToEnd) {
  each_rank(3, [&](Communicator& comm) {
    Row x = row_of(DType::f32, 1000003, comm.rank());
    const auto pending = comm.all_reduce(x);
    while (!pending->done()) std::this_thread::yield();
    EXPECT_EQ(x[1000002], sum_over(3, 1000002));
    pending->wait();
  });
}

// A rank that computes lets the others do the work: they are done while it has not waited at all.
TEST(InFlight, ARankThatComputesHoldsNobodyUp) {
  std::atomic<int> finished = 0;
  each_rank(3, [&](Communicator& comm) {
    Row x = row_of(DType::f32, 500009, comm.rank());
    const auto pending = comm.all_reduce(x);
    if (comm.rank() == 2) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (finished < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      EXPECT_EQ(finished, 2);
      EXPECT_TRUE(pending->done());
    }
    pending->wait();
    ++finished;
    EXPECT_EQ(x[17], sum_over(3, 17));
  });
}

TEST(InFlight, MessagesOfOnePairKeepTheirOrder) {
  each_rank(2, [&](Communicator& comm) {
    std::vector<Row> rows;
    for (int i = 0; i < 20; ++i)
      rows.push_back(comm.rank() == 0 ? row_of(DType::i32, i * 991, i) : Row(DType::i32, i * 991));
    std::vector<std::unique_ptr<Pending>> pending;
    for (Row& row : rows) pending.push_back(comm.rank() == 0 ? comm.send(row, 1) : comm.recv(row, 0));
    for (std::size_t i = pending.size(); i-- > 0;) pending[i]->wait();
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(rows[static_cast<std::size_t>(i)].bytes(), row_of(DType::i32, i * 991, i).bytes());
  });
}

TEST(InFlight, ManySmallOnesOfManyRanks) {
  each_rank(16, [&](Communicator& comm) {
    for (int i = 0; i < 200; ++i) {
      Row x(DType::i64, 3, [&](std::int64_t k) { return static_cast<double>(i + k + comm.rank()); });
      comm.all_reduce(x)->wait();
      ASSERT_EQ(x[1], 16 * (i + 1) + 120);
    }
  });
}

// dp × tp: every rank in two groups of its own, some work in all three at once.
TEST(Split, GroupsAreWhatTheirColorsSay) {
  each_rank(6, [&](Communicator& comm) {
    const auto rows = comm.split([](int rank) { return Place{rank / 3, rank}; }, "rows");
    const auto columns = comm.split([](int rank) { return Place{rank % 3, -rank}; }, "columns");  // backwards
    const auto some = comm.split([](int rank) { return Place{rank < 2 ? 0 : -1, 0}; }, "some");
    const auto alone = comm.split([](int rank) { return Place{rank, 0}; }, "alone");
    EXPECT_EQ(rows->name(), "rows");
    EXPECT_EQ(rows->size(), 3);
    EXPECT_EQ(rows->rank(), comm.rank() % 3);
    EXPECT_EQ(columns->size(), 2);
    EXPECT_EQ(columns->rank(), comm.rank() < 3 ? 1 : 0);
    EXPECT_EQ(some != nullptr, comm.rank() < 2);
    EXPECT_EQ(alone->size(), 1);

    const auto mine = [&](std::int64_t) { return static_cast<double>(1 << comm.rank()); };
    Row a(DType::i32, 1000, mine), b(DType::i32, 70000, mine), c(DType::i32, 3, mine), d(DType::i32, 3, mine);
    const auto wait_a = rows->all_reduce(a), wait_b = columns->all_reduce(b), wait_c = comm.all_reduce(c);
    alone->all_reduce(d)->wait();
    wait_c->wait();
    wait_b->wait();
    wait_a->wait();
    EXPECT_EQ(a[999], comm.rank() < 3 ? 7 : 56);
    EXPECT_EQ(b[69999], 9 << (comm.rank() % 3));
    EXPECT_EQ(c[0], 63);
    EXPECT_EQ(d[0], 1 << comm.rank());
    // A group of a group.
    const auto inner = rows->split([](int rank) { return Place{rank == 1, 0}; }, "inner");
    EXPECT_EQ(inner->size(), comm.rank() % 3 == 1 ? 1 : 2);
    Row e(DType::i32, 1, mine);
    inner->all_reduce(e)->wait();
    const int base = comm.rank() < 3 ? 1 : 8;
    EXPECT_EQ(e[0], comm.rank() % 3 == 1 ? 2 * base : 5 * base);
  });
}

}  // namespace
}  // namespace lockstep::tests
