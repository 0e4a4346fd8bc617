// The run's clock over ranks whose clocks differ: within its stated error, with the messages that are derived.
#include "train/run_clock.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"

namespace lockstep::tests {
namespace {

// What a clock shows: up to an hour from others, drifting by up to 500 ppm.
double fake_clock(int clock, double truth) {
  static const double begin = steady_now();
  const double sign = clock % 2 ? 1 : -1;
  return truth + sign * (truth - begin) * 500e-6 + sign * 3600.0 * (clock % 5) / 4;
}

struct ClockCase {
  ClockScope scope;
  std::vector<int> clock_of;  // by rank: the host, whose clock it reads
};

// Moments of one true time on the run's clock, by rank: as far apart as the two ranks' errors at most. All ranks are
// threads, so the true time is the steady clock's.
TEST(RunClock, IsTheSameOnAllRanksWithinItsError) {
  for (const ClockCase& one : {ClockCase{ClockScope::global, {0, 1, 2, 3}},
                               {ClockScope::global, {0, 1}},
                               {ClockScope::local, {0, 0, 1, 1, 2}},
                               {ClockScope::local, {0, 1, 0, 1, 1}},
                               {ClockScope::local, {3, 2, 1, 0}}}) {
    const int ranks = static_cast<int>(one.clock_of.size());
    std::mutex mutex;
    struct Reading {
      double run, error, since;
    };
    std::vector<std::vector<Reading>> readings(4);
    double at = 0;
    run_ranks(ranks, [&](std::unique_ptr<Communicator> comm) {
      const int own = one.clock_of[static_cast<std::size_t>(comm->rank())];
      RunClock clock(
          comm.get(),
          {.scope = one.scope, .now = [=] { return fake_clock(own, steady_now()); }, .host = std::to_string(own)});
      for (auto& round : readings) {
        clock.compare();
        comm->barrier()->wait();
        if (comm->rank() == 0) at = steady_now();
        comm->barrier()->wait();
        const double reading = fake_clock(own, at);
        const std::lock_guard lock(mutex);
        round.push_back({clock.of(reading), *clock.error(reading), clock.since_1970(clock.of(reading))});
      }
    });
    for (const auto& round : readings)
      for (const Reading& a : round)
        for (const Reading& b : round) {
          EXPECT_LE(std::abs(a.run - b.run), a.error + b.error);
          EXPECT_NEAR(a.since,
                      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(), 60);
          EXPECT_LT(a.error, 0.5);
        }
  }
}

std::int64_t messages_of(const CommLog& log) {
  std::int64_t messages = 0;
  for (const auto& [key, total] : log.totals()) messages += total.messages;
  return messages;
}

TEST(RunClock, SendsTheMessagesThatAreDerived) {
  struct Count {
    ClockScope scope;
    std::vector<int> host_of;
    int clocks;
  };
  for (const Count& one : {Count{ClockScope::global, {0, 0, 0, 0, 0}, 5},
                           {ClockScope::global, {0, 0}, 2},
                           {ClockScope::local, {0, 0, 1, 1, 2, 2}, 3},
                           {ClockScope::local, {0, 1, 2}, 3},
                           {ClockScope::local, {0, 0, 0, 0}, 1},
                           {ClockScope::off, {0, 1, 2}, 1}}) {
    const int ranks = static_cast<int>(one.host_of.size());
    std::mutex mutex;
    std::int64_t sent = 0, across = 0, at_start = 0;
    run_ranks(ranks, [&](std::unique_ptr<Communicator> inner) {
      CommLog log;
      Recorder comm(std::move(inner), log);
      RunClock clock(&comm,
                     {.scope = one.scope, .host = std::to_string(one.host_of[static_cast<std::size_t>(comm.rank())])});
      const std::int64_t before = messages_of(log);
      clock.compare();
      const std::lock_guard lock(mutex);
      at_start += before;
      sent += messages_of(log) - before;
      for (const auto& [key, total] : log.totals())
        if (std::get<CommOp>(key) == CommOp::send) across += total.messages;
    });
    const std::int64_t expected = one.clocks == 1 ? 0 : 2 * RunClock::kRoundTrips * (one.clocks - 1) + ranks - 1;
    EXPECT_EQ(sent, expected) << name_of(one.scope) << " of " << ranks;
    EXPECT_EQ(across, 2 * RunClock::kRoundTrips * (one.clocks - 1)) << name_of(one.scope) << " of " << ranks;
    EXPECT_EQ(at_start > 0, one.scope == ClockScope::local) << name_of(one.scope);
  }
}

TEST(RunClock, OfOneHostIsExactAndNeverDue) {
  run_ranks(3, [](std::unique_ptr<Communicator> comm) {
    RunClock clock(comm.get(), {});
    clock.compare();
    EXPECT_EQ(clock.of(123.25), 123.25);
    EXPECT_EQ(clock.error(1e6), 0);
    EXPECT_FALSE(clock.would_pass(1e-12, 1e6));
    EXPECT_TRUE(clock.compared().empty());
  });
}

TEST(RunClock, ThatIsOffKnowsNoError) {
  run_ranks(2, [](std::unique_ptr<Communicator> comm) {
    RunClock clock(comm.get(), {.scope = ClockScope::off, .host = std::to_string(comm->rank())});
    EXPECT_FALSE(clock.error(clock.now()));
    EXPECT_FALSE(clock.would_pass(1e-12, 1e6));
    EXPECT_NEAR(clock.since_1970(clock.of(clock.now())),
                std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(), 1);
  });
}

// Drifts are not known after one comparison, and are after a second.
TEST(RunClock, IsDueBeforeTheErrorPassesAndLaterEachTime) {
  run_ranks(2, [](std::unique_ptr<Communicator> comm) {
    double truth = 1000;  // made to pass
    const double drift = comm->rank() == 0 ? 0 : 300e-6;
    RunClock clock(comm.get(), {.scope = ClockScope::global, .now = [&] {
                                  truth += 1e-6;  // a reading takes time: a round trip is not nothing
                                  return truth * (1 + drift);
                                }});
    clock.compare();
    EXPECT_FALSE(clock.would_pass(1e-3, 0));
    EXPECT_TRUE(clock.would_pass(1e-3, 10)) << "10 s at 1000 ppm";
    truth = 1100;
    clock.compare();
    EXPECT_FALSE(clock.would_pass(1e-3, 10));
    EXPECT_TRUE(clock.would_pass(1e-3, 1e5)) << "residual drift";
    EXPECT_FALSE(clock.would_pass(1e-12, 1e-3)) << "what a comparison cannot reach is no reason for another";
    if (comm->rank() == 0) {
      ASSERT_EQ(clock.compared().size(), 2u);
      EXPECT_NEAR(clock.compared()[0].drift - clock.compared()[1].drift, 300e-6, 5e-6);
      EXPECT_NEAR(clock.compared()[0].offset, 1100 * 150e-6, 1e-3) << "behind the mean";
      EXPECT_NEAR(clock.compared()[1].offset, -1100 * 150e-6, 1e-3) << "ahead of it";
    }
  });
}

}  // namespace
}  // namespace lockstep::tests
