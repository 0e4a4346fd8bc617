// What is recorded is what theory says, on threads and on meta alike, for any number of ranks.
#include "comm/recorder.h"

#include <gmock/gmock.h>

#include <bit>
#include <deque>
#include <thread>

#include "comm/meta/communicator.h"
#include "comm/parts.h"
#include "comm/ranks.h"
#include "comm/watchdog.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

// Calls of every operation, as any rank makes them, on either device.
class Calls {
 public:
  Calls(Device device, int rank, int ranks) : device_(device), rank_(rank), ranks_(ranks) {}

  std::vector<Message> all(std::int64_t n) {
    std::vector<Message> calls;
    std::vector<std::int64_t> counts;
    std::int64_t sum = 0;
    for (int r = 0; r < ranks_; ++r) sum += counts.emplace_back(r % 3 == 1 ? 0 : n + r);
    const auto mine = counts[static_cast<std::size_t>(rank_)];
    std::int64_t room = 0;
    for (int r = 0; r < ranks_; ++r) room += n + (r + rank_) % 4;
    std::vector<std::int64_t> given;
    for (int r = 0; r < ranks_; ++r) given.push_back(n + (rank_ + r) % 4);
    const int root = ranks_ / 2;
    for (const Algorithm a : kAlgorithms) {
      calls.push_back({.op = CommOp::all_reduce, .out = t(n), .in = t(n), .algorithm = a});
      calls.push_back({.op = CommOp::reduce_scatter, .out = t(n), .in = t(n * ranks_), .algorithm = a});
      calls.push_back({.op = CommOp::reduce_scatter, .out = t(mine), .in = t(sum), .algorithm = a, .counts = counts});
      calls.push_back({.op = CommOp::all_gather, .out = t(n * ranks_), .in = t(n), .algorithm = a});
      calls.push_back({.op = CommOp::all_gather, .out = t(sum), .in = t(mine), .algorithm = a, .counts = counts});
      calls.push_back({.op = CommOp::broadcast, .out = t(n), .in = t(n), .algorithm = a, .peer = root});
      calls.push_back({.op = CommOp::reduce, .out = t(n), .in = t(n), .algorithm = a, .peer = root});
    }
    calls.push_back({.op = CommOp::gather, .out = t(sum), .in = t(mine), .peer = root, .counts = counts});
    calls.push_back({.op = CommOp::scatter, .out = t(mine), .in = t(sum), .peer = root, .counts = counts});
    calls.push_back({.op = CommOp::all_to_all, .out = t(n * ranks_), .in = t(n * ranks_)});
    calls.push_back({.op = CommOp::all_to_all, .out = t(room), .in = t(room), .counts = given});
    if (ranks_ > 1 && rank_ < 2)
      calls.push_back(rank_ == 0 ? Message{.op = CommOp::send, .in = t(n), .peer = 1}
                                 : Message{.op = CommOp::recv, .out = t(n), .peer = 0});
    calls.push_back({.op = CommOp::barrier});
    return calls;
  }

 private:
  Tensor t(std::int64_t n) {
    if (device_ == Device::meta) return Tensor(nullptr, DType::f32, device_, {n});
    return rows_.emplace_back(DType::f32, n, [](std::int64_t) { return 0.0; });
  }
  Device device_;
  int rank_, ranks_;
  std::deque<Row> rows_;
};

class Recorded : public ::testing::TestWithParam<int> {};

TEST_P(Recorded, OnMetaAsOnThreads) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](std::unique_ptr<Communicator> inner) {
    CommLog log(1000), meta_log(1000);
    Recorder comm(std::move(inner), log);
    Recorder meta(std::make_unique<meta::Communicator>(comm.rank(), ranks), meta_log);
    Calls real(Device::cpu, comm.rank(), ranks), counted(Device::meta, comm.rank(), ranks);
    for (const std::int64_t n : {0, 1, 7, 1000}) {
      for (const Message& m : real.all(n)) comm.start(m)->wait();
      for (const Message& m : counted.all(n)) meta.start(m)->wait();
    }
    const auto a = log.last(), b = meta_log.last();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(describe(a[i]), describe(b[i]));
      EXPECT_EQ(a[i].traffic, b[i].traffic) << describe(a[i]);
      EXPECT_EQ(a[i].bytes, b[i].count * 4);
      EXPECT_TRUE(a[i].done);
      EXPECT_GE(a[i].ended, a[i].started);
    }
    EXPECT_EQ(log.sent(), meta_log.sent());
  });
}

// What all send is what all receive, whatever the operation, the sizes and the algorithm.
TEST_P(Recorded, NothingIsLostOnTheWay) {
  const int ranks = GetParam();
  for (const std::int64_t n : {0, 1, 7, 1000}) {
    std::vector<std::vector<Message>> calls;
    std::vector<Calls> makers;
    for (int rank = 0; rank < ranks; ++rank) calls.push_back(makers.emplace_back(Device::meta, rank, ranks).all(n));
    const std::size_t collectives = calls.back().size() - 1;
    for (std::size_t i = 0; i < collectives && !point_to_point(calls[0][i].op); ++i) {
      std::int64_t sent = 0, received = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Traffic t = traffic_of(calls[static_cast<std::size_t>(rank)][i], rank, ranks);
        EXPECT_GE(t.sent, 0);
        EXPECT_GE(t.received, 0);
        sent += t.sent;
        received += t.received;
      }
      EXPECT_EQ(sent, received) << describe(calls[0][i], ranks) << " over " << ranks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Recorded, ::testing::Range(1, 9));

Tensor nothing(std::int64_t n) { return Tensor(nullptr, DType::f32, Device::meta, {n}); }

TEST(Theory, DividedEvenly) {
  for (const int ranks : {2, 3, 4, 5, 7, 8, 64, 1000, 100000}) {
    const std::int64_t each = 128, n = each * ranks, share = n - each;  // n (N - 1) / N
    for (const int rank : {0, 1, ranks - 1}) {
      CommLog log;
      Recorder comm(std::make_unique<meta::Communicator>(rank, ranks), log);
      for (const Algorithm a : {Algorithm::canonical, Algorithm::ring}) {
        CommLog one;
        Recorder counted(std::make_unique<meta::Communicator>(rank, ranks), one);
        counted.all_reduce(nothing(n), {.algorithm = a})->wait();
        counted.reduce_scatter(nothing(each), nothing(n), {.algorithm = a})->wait();
        counted.start({.op = CommOp::all_gather, .out = nothing(n), .in = nothing(each), .algorithm = a})->wait();
        EXPECT_EQ(one.sent(CommOp::all_reduce), 2 * share);
        EXPECT_EQ(one.sent(CommOp::reduce_scatter), share);
        EXPECT_EQ(one.sent(CommOp::all_gather), share);
        EXPECT_EQ(one.sent(), 4 * share);
      }
      const Message tree{.op = CommOp::all_reduce, .out = nothing(n), .in = nothing(n), .algorithm = Algorithm::tree};
      if (std::has_single_bit(static_cast<unsigned>(ranks))) {
        const Traffic t = traffic_of(tree, rank, ranks);
        EXPECT_EQ(t.sent, 2 * share);
        EXPECT_EQ(t.messages, 2 * (std::bit_width(static_cast<unsigned>(ranks)) - 1));
      }
      comm.broadcast(nothing(n), 0)->wait();
      EXPECT_EQ(log.sent(), rank == 0 ? n * (ranks - 1) : 0);
    }
  }
}

TEST(Theory, WithARest) {
  for (const int ranks : {3, 5, 7})
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t n = 1000, mine = n / ranks + (rank < n % ranks);
      const std::int64_t next = n / ranks + ((rank + 1) % ranks < n % ranks);
      const Message m{.op = CommOp::all_reduce, .out = nothing(n), .in = nothing(n)};
      EXPECT_EQ(traffic_of(m, rank, ranks).sent, n - mine + (ranks - 1) * mine);
      Message ring = m;
      ring.algorithm = Algorithm::ring;
      EXPECT_EQ(traffic_of(ring, rank, ranks).sent, 2 * n - mine - next);
    }
}

TEST(Log, KeepsTheLastAndCountsAll) {
  CommLog log(3);
  Recorder comm(std::make_unique<meta::Communicator>(1, 4), log);
  for (int i = 0; i < 10; ++i) comm.all_reduce(nothing(8))->wait();
  const auto pair = comm.split([](int rank) { return Place{rank / 2, 0}; }, "pair");
  const auto pending = pair->barrier();
  ASSERT_EQ(log.last().size(), 3u);
  EXPECT_EQ(log.last().back().group, "pair");
  EXPECT_EQ(log.last()[1].sequence, 10u);
  EXPECT_FALSE(log.last().back().done);
  EXPECT_THAT(log.last_operations(), HasSubstr("barrier #1 of 'pair', 0 fp32, canonical: under way"));
  pending->wait();
  EXPECT_TRUE(log.last().back().done);
  const CommTotal total = log.totals().at({"world", CommOp::all_reduce, DType::f32});
  EXPECT_EQ(total.calls, 10);
  EXPECT_EQ(total.sent, 120);
  EXPECT_EQ(total.bytes_sent, 480);
  EXPECT_EQ(total.messages, 60);
}

TEST(OnMeta, SplitsOfAHundredThousandRanks) {
  constexpr int kRanks = 100000;
  CommLog log;
  Recorder comm(std::make_unique<meta::Communicator>(77777, kRanks), log);
  const auto tp = comm.split([](int rank) { return Place{rank / 8, rank}; }, "tp");
  const auto dp = comm.split([](int rank) { return Place{rank % 8, rank}; }, "dp");
  EXPECT_EQ(tp->size(), 8);
  EXPECT_EQ(tp->rank(), 77777 % 8);
  EXPECT_EQ(dp->size(), kRanks / 8);
  EXPECT_EQ(dp->rank(), 77777 / 8);
  dp->all_reduce(nothing(12500 * 3))->wait();
  EXPECT_EQ(log.sent(), 2 * 3 * 12499);
}

TEST(Watched, ADeadlineAndTheLastRecordsOnTopOfAnyBackend) {
  std::string words[3];
  run_ranks(3, [&](std::unique_ptr<Communicator> inner) {
    CommLog log;
    const int rank = inner->rank();
    Watchdog comm(std::make_unique<Recorder>(std::move(inner), log), log, 0.3);
    Row x = row_of(DType::f32, 100003, rank);
    for (int i = 0; i < 3; ++i) comm.all_reduce(x)->wait();
    const auto part = comm.split([](int) { return Place{}; }, "part");
    part->barrier()->wait();
    if (rank == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(700));
    try {
      part->all_reduce(x)->wait();
    } catch (const CommError& error) {
      words[rank] = error.what();
    }
  });
  for (const int rank : {0, 2}) {
    // One of them passes the deadline first and goes away, which the other may see.
    EXPECT_TRUE(words[rank].find("rank 1 has not come") != std::string::npos ||
                words[rank].find("went away") != std::string::npos)
        << words[rank];
    EXPECT_THAT(words[rank], HasSubstr(fmt::format("the last of rank {}: ", rank)));
    EXPECT_THAT(words[rank], HasSubstr("barrier #1 of 'part', 0 fp32, canonical: done; all_reduce #2 of 'part', 100003 "
                                       "fp32, canonical: under way"));
  }
  EXPECT_THAT(words[0] + words[2], HasSubstr("was not done within 0.3 s"));
}

}  // namespace
}  // namespace lockstep::tests
