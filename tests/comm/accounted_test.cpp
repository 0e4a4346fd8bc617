// An accounted communicator counts what a recorder counts, charges every wait to what its group is for, and says which
// call holds its rank.
#include "comm/accounted.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/ranks.h"
#include "comm/recorder.h"
#include "comm/traffic.h"

namespace lockstep::tests {
namespace {

TimeUse use_of_group(const std::string& group) {
  return group == "tp" ? TimeUse::wait_tp : group == "pp" ? TimeUse::wait_pp : TimeUse::wait_dp;
}

TEST(Accounted, CountsTensorsByGroupAndNumbersApart) {
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](std::unique_ptr<Communicator> inner) {
      CommLog log(1000);
      Recorder recorder(std::move(inner), log);
      CommAccount account;
      Accounted world(recorder, account, use_of_group);
      const auto pairs = world.split([](int rank) { return Place{rank / 2, rank}; }, "tp");
      const auto ends = world.split([](int rank) { return Place{rank % 2, rank}; }, "pp");
      Row large(DType::f32, 1000), small(DType::f64, 255), numbers(DType::f64, 256);
      for (int i = 0; i < 3; ++i) {
        world.all_reduce(large)->wait();
        world.all_reduce(small)->wait();
        pairs->all_reduce(large, {.algorithm = Algorithm::ring})->wait();
        ends->broadcast(numbers, 0)->wait();
        world.barrier()->wait();
      }
      std::array<MessageCount, kTimeUses> tensors{};
      MessageCount apart;
      for (const CommRecord& record : log.last()) {
        if (record.traffic.sent == 0 && record.traffic.received == 0) continue;
        MessageCount& count = is_number(record.dtype, record.count)
                                  ? apart
                                  : tensors[static_cast<std::size_t>(use_of_group(record.group))];
        ++count.calls;
        count.bytes_sent += record.traffic.sent * size_of(record.dtype);
      }
      EXPECT_EQ(account.tensors, tensors);
      EXPECT_EQ(account.numbers, apart);
      EXPECT_EQ(account.numbers.calls, ranks > 1 ? 3 : 0) << "255 numbers are no tensor";
      EXPECT_EQ(account.tensors[static_cast<std::size_t>(TimeUse::wait_tp)].calls, ranks > 1 ? 3 : 0);
      EXPECT_EQ(account.tensors[static_cast<std::size_t>(TimeUse::wait_pp)].calls, ranks > 2 ? 3 : 0);
    });
}

TEST(Accounted, ChargesWaitsToTheGroupAndNothingElse) {
  run_ranks(2, [&](std::unique_ptr<Communicator> inner) {
    TimeAccount time;
    CommAccount account;
    account.time = &time;
    Accounted world(*inner, account, use_of_group);
    const auto pair = world.split([](int rank) { return Place{0, rank}; }, "tp");
    world.barrier()->wait();
    const Spending computing(&time, TimeUse::compute);
    time.take();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Row x(DType::f32, 10, [](std::int64_t) { return 1.0; });
    pair->all_reduce(x)->wait();
    const TimesByUse times = time.take();
    EXPECT_EQ(x[3], 2);
    EXPECT_EQ(times[TimeUse::wait_dp], 0);
    EXPECT_EQ(times[TimeUse::other], 0);
    if (world.rank() == 0) {
      EXPECT_GE(times[TimeUse::wait_tp], 0.15);
    }
    if (world.rank() == 1) {
      EXPECT_GE(times[TimeUse::compute], 0.2);
    }
  });
}

// Two messages at once take no longer than one; what is not waited for ends when it is seen to be done.
TEST(Accounted, TimesHowLongMessagesAreUnderWay) {
  run_ranks(2, [&](std::unique_ptr<Communicator> inner) {
    const auto pause = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
    TimeAccount time;
    CommAccount account;
    Accounted world(*inner, account, use_of_group);
    const auto pair = world.split([](int rank) { return Place{0, rank}; }, "tp");
    TimeUnderWay& under_way = account.under_way[static_cast<std::size_t>(TimeUse::wait_tp)];
    Row x(DType::f32, 1000), y(DType::f32, 1000), number(DType::f64, 1);
    pair->all_reduce(x)->wait();
    EXPECT_EQ(under_way.take(), 0) << "without a clock nothing is timed";
    account.time = &time;
    {
      auto first = pair->all_reduce(x);
      pause(60);
      auto second = pair->all_reduce(y);
      pause(100);
      first->wait();
      second->wait();
    }
    const double both = under_way.take();
    EXPECT_GE(both, 0.16) << "from the start of the first";
    EXPECT_LT(both, 0.3) << "not twice";
    {
      auto polled = pair->all_reduce(x);
      while (!polled->done()) pause(1);
      under_way.take();
      pause(50);
    }
    EXPECT_EQ(under_way.take(), 0) << "it was done before";
    pair->all_reduce(number)->wait();
    world.all_reduce(x)->wait();
    EXPECT_EQ(under_way.take(), 0) << "a number, and another axis";
    account.paused = true;
    const MessageCount before = account.tensors[static_cast<std::size_t>(TimeUse::wait_tp)];
    pair->all_reduce(x)->wait();
    EXPECT_EQ(under_way.take(), 0) << "while it is paused";
    EXPECT_EQ(account.tensors[static_cast<std::size_t>(TimeUse::wait_tp)], before);
    account.paused = false;
    // Every message has ended once: the next ones are timed by themselves, also those that nobody waits for.
    for (int i = 0; i < 2; ++i) {
      {
        const auto dropped = pair->all_reduce(x);
        pause(20);
      }
      EXPECT_GE(under_way.take(), 0.02);
    }
  });
}

TEST(Accounted, SaysWhichCallHoldsTheRank) {
  Doing doing;
  run_ranks(2, [&](std::unique_ptr<Communicator> inner) {
    CommAccount account;
    Accounted world(*inner, account, use_of_group);
    const auto pair = world.split([](int rank) { return Place{0, rank}; }, "pp");
    if (world.rank() == 0) account.doing = &doing;
    Row x(DType::f32, 10);
    pair->barrier()->wait();
    if (world.rank() == 1) {  // keeps rank 0 waiting until it is seen to wait
      std::optional<DoingState> seen;
      for (int i = 0; i < 10000 && !(seen && seen->call == 2); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        seen = doing.load();
      }
      EXPECT_TRUE(seen && seen->kind == DoingKind::call && seen->call == 2);
      if (seen && seen->call == 2) {
        EXPECT_STREQ(seen->group, "pp");
        EXPECT_STREQ(seen->op, "all_reduce");
      }
    }
    pair->all_reduce(x)->wait();
  });
  EXPECT_EQ(doing.own().kind, DoingKind::between_steps) << "and where it was before, when it has come";
}

}  // namespace
}  // namespace lockstep::tests
