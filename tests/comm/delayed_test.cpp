// A slow link: time passes as latency and bandwidth say, and what is computed meanwhile hides it.
#include "comm/delayed.h"

#include <thread>

#include "comm/ranks.h"
#include "comm/recorder.h"

namespace lockstep::tests {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
void compute(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Over two ranks an all-reduce of n elements sends n of them, in two steps.
constexpr std::int64_t kElements = 10000;
constexpr double kRate = 1e6, kLatency = 0.005, kSeconds = 2 * kLatency + 4 * kElements / kRate;  // 0.05

// Each time is one of a machine that may be busy: never less than said, and a good deal more only if it is.
constexpr double kSlack = 0.045;  // less than what would be hidden
constexpr double kPatience = 2;   // of a busy machine

void on_slow_links(const std::function<void(Communicator&)>& body) {
  run_ranks(2, [&](std::unique_ptr<Communicator> inner) {
    SimulatedLink link(kLatency, kRate);
    Delayed comm(std::move(inner), link);
    body(comm);
  });
}

TEST(Delayed, TakesTheTimeOfItsBytes) {
  on_slow_links([](Communicator& comm) {
    Row x = row_of(DType::f32, kElements, comm.rank());
    const auto begin = Clock::now();
    const auto pending = comm.all_reduce(x);
    EXPECT_LT(since(begin), kSeconds);
    pending->wait();
    EXPECT_GE(since(begin), kSeconds);
    EXPECT_LT(since(begin), kSeconds + kPatience);
    EXPECT_EQ(x[5], whole(0, 5) + whole(1, 5));
  });
}

// A machine with other work may lose time anywhere, so one try of several is enough.
TEST(Delayed, HidesBehindWhatIsComputed) {
  std::atomic<bool> hidden = false;
  for (int attempt = 0; attempt < 10 && !hidden; ++attempt) {
    hidden = true;
    on_slow_links([&](Communicator& comm) {
      Row x = row_of(DType::f32, kElements, comm.rank());
      const auto begin = Clock::now();
      const auto pending = comm.all_reduce(x);
      EXPECT_FALSE(pending->done());
      compute(1.2 * kSeconds);
      while (!pending->done()) compute(0.0005);  // the other may not have come yet
      pending->wait();
      if (since(begin) >= 1.2 * kSeconds + kSlack) hidden = false;  // both, not one of the two
    });
  }
  EXPECT_TRUE(hidden);
}

// The recorder knows how long its rank stood waiting: all of it where nothing was computed, and little where it was.
TEST(Recorded, TheTimeThatAWaitTakesIsSummed) {
  std::atomic<bool> hidden = false;
  for (int attempt = 0; attempt < 10 && !hidden; ++attempt) {
    hidden = true;
    run_ranks(2, [&](std::unique_ptr<Communicator> inner) {
      SimulatedLink link(kLatency, kRate);
      CommLog log(1);  // what is no longer kept is summed all the same
      Recorder comm(std::make_unique<Delayed>(std::move(inner), link), log);
      Row x = row_of(DType::f32, kElements, comm.rank()), y = x;
      const auto begin = Clock::now();
      const auto first = comm.all_reduce(x), second = comm.all_reduce(y);
      first->wait();
      second->wait();
      const double passed = since(begin), waited = log.waited();
      EXPECT_LE(waited, passed);
      EXPECT_GE(waited, 2 * kSeconds - kSlack);
      EXPECT_DOUBLE_EQ(log.totals().at({"world", CommOp::all_reduce, DType::f32}).waited, waited);
      const auto pending = comm.all_reduce(x);
      compute(1.2 * kSeconds);
      while (!pending->done()) compute(0.0005);
      pending->wait();
      pending->wait();
      if (log.waited() - waited > kSeconds / 5) hidden = false;
    });
  }
  EXPECT_TRUE(hidden);
}

TEST(Delayed, OneAfterTheOtherOnOneLinkAlsoOfSeveralGroups) {
  on_slow_links([](Communicator& comm) {
    const auto part = comm.split([](int) { return Place{}; }, "part");
    Row x = row_of(DType::f32, kElements, comm.rank()), y = x, z = x;
    const auto begin = Clock::now();
    const auto a = comm.all_reduce(x), b = part->all_reduce(y), c = comm.all_reduce(z);
    a->wait();
    EXPECT_GE(since(begin), kSeconds);
    c->wait();
    EXPECT_GE(since(begin), 3 * kSeconds);
    b->wait();
    EXPECT_LT(since(begin), 3 * kSeconds + kPatience);
  });
}

TEST(Delayed, ReceivingTakesAsLongAsSending) {
  on_slow_links([](Communicator& comm) {
    Row x = row_of(DType::f32, kElements, comm.rank());
    const auto begin = Clock::now();
    (comm.rank() == 0 ? comm.send(x, 1) : comm.recv(x, 0))->wait();
    // It is on its way from when it was sent, which may be before the receiver has begun to look at its clock.
    const double early = comm.rank() == 0 ? 0 : 0.02;
    EXPECT_GE(since(begin), kLatency + 4 * kElements / kRate - early);
    const auto again = Clock::now();
    comm.barrier()->wait();
    EXPECT_GE(since(again), kLatency);
  });
}

TEST(Delayed, AGroupOfOneTakesNoTime) {
  SimulatedLink link(10, 1);
  run_ranks(1, [&](std::unique_ptr<Communicator> inner) {
    Delayed comm(std::move(inner), link);
    Row x = row_of(DType::f32, kElements, 0);
    const auto begin = Clock::now();
    comm.all_reduce(x)->wait();
    EXPECT_LT(since(begin), 5);
  });
}

}  // namespace
}  // namespace lockstep::tests
