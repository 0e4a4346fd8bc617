// Who begins and whose gradient is next, by plain data.
#include "parallel/arrival_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kNever = 1'000'000'000;

// Workers that take random times; the work of some takes longer.
std::vector<Arrival> run_order(ArrivalOrder& order, std::int64_t updates, unsigned seed, int slow_worker = -1) {
  std::mt19937 random(seed);
  std::vector<Arrival> record;
  std::vector<std::pair<std::int64_t, int>> computing;  // when it is done
  std::int64_t now = 0;
  order.start(0);
  while (std::ssize(record) < updates) {
    while (const auto begun = order.begin(updates)) {
      EXPECT_EQ(begun->version, order.applied());
      computing.emplace_back(
          now + 1 + static_cast<std::int64_t>(random() % 20) + (begun->worker == slow_worker ? 200 : 0), begun->worker);
    }
    if (const auto next = order.apply()) {
      record.push_back(*next);
      continue;
    }
    EXPECT_FALSE(computing.empty()) << "nobody computes and nothing can be applied";
    if (computing.empty()) break;
    const auto first = std::ranges::min_element(computing);
    now = first->first;
    order.arrive(first->second);
    computing.erase(first);
  }
  return record;
}

TEST(ArrivalOrder, AppliesEveryTicketOnceWithinTheBound) {
  for (const int workers : {1, 2, 3, 5, 8})
    for (const std::int64_t bound : {std::int64_t{-1}, std::int64_t{1}, std::int64_t{2}, std::int64_t{7}})
      for (const int slow : {-1, 0}) {
        ArrivalOrder order(workers, bound);
        const std::vector<Arrival> record = run_order(order, 200, static_cast<unsigned>(workers), slow);
        std::set<std::int64_t> tickets;
        std::int64_t most = 0;
        for (std::size_t i = 0; i < record.size(); ++i) {
          EXPECT_EQ(record[i].update, static_cast<std::int64_t>(i));
          tickets.insert(record[i].ticket);
          most = std::max(most, record[i].staleness());
        }
        EXPECT_EQ(tickets.size(), 200u);
        EXPECT_EQ(*tickets.rbegin(), 199);
        if (bound >= 0) {
          EXPECT_LE(most, bound) << workers << " workers";
        }
        if (bound < 0 && slow == 0 && workers > 2) {
          EXPECT_GT(most, workers) << "the bound is what holds";
        }
      }
}

// The gradient that came first waits for one that would otherwise be too late.
TEST(ArrivalOrder, HoldsAGradientBackForOneWhoseTimeIsUp) {
  ArrivalOrder order(2, 1);
  order.start(0);
  ASSERT_EQ(order.begin(kNever)->worker, 0);
  ASSERT_EQ(order.begin(kNever)->worker, 1);
  order.arrive(1);
  EXPECT_EQ(order.apply()->worker, 1);  // worker 0 will be one late
  const auto again = order.begin(kNever);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->worker, 1);
  EXPECT_EQ(again->ticket, 2);
  EXPECT_EQ(again->version, 1);
  order.arrive(1);
  EXPECT_FALSE(order.apply()) << "worker 0 would be two late";
  order.arrive(0);
  EXPECT_EQ(order.apply()->worker, 0);
  EXPECT_EQ(order.apply()->worker, 1);
}

TEST(ArrivalOrder, BeginsNoMoreThanTheBoundAllows) {
  ArrivalOrder order(4, 1);
  order.start(0);
  EXPECT_TRUE(order.begin(kNever));
  EXPECT_TRUE(order.begin(kNever));
  EXPECT_FALSE(order.begin(kNever)) << "the third could be two late";
  ArrivalOrder limited(4, -1);
  limited.start(8);
  EXPECT_EQ(limited.begin(9)->ticket, 8);
  EXPECT_FALSE(limited.begin(9)) << "tickets end there";
}

TEST(ArrivalOrder, RepeatsARecordWhateverTheTimes) {
  for (const int workers : {2, 3, 7}) {
    ArrivalOrder once(workers, -1);
    const std::vector<Arrival> record = run_order(once, 120, 5, 1);
    for (const unsigned seed : {1u, 2u, 3u}) {
      ArrivalOrder again(workers, -1, record);
      EXPECT_TRUE(run_order(again, 120, seed) == record) << workers;
    }
  }
}

// Past its end it goes on, with the tickets that the record has passed over first.
TEST(ArrivalOrder, GoesOnPastTheRecord) {
  const std::vector<Arrival> record{{.update = 0, .worker = 1, .ticket = 1, .version = 0}};
  ArrivalOrder order(2, -1, record);
  order.start(0);
  ASSERT_EQ(order.begin(kNever)->ticket, 1);
  EXPECT_FALSE(order.begin(kNever)) << "worker 0 has nothing in the record";
  order.arrive(1);
  ASSERT_TRUE(order.apply());
  EXPECT_EQ(order.begin(kNever)->ticket, 0);
  EXPECT_EQ(order.begin(kNever)->ticket, 2);
}

TEST(ArrivalOrder, RefusesARecordThatCannotBe) {
  const auto refused = [](const std::vector<Arrival>& record, std::int64_t workers) -> std::string {
    try {
      ArrivalOrder::check(record, workers, "a file");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const Arrival first{.update = 0, .worker = 0, .ticket = 0, .version = 0};
  EXPECT_EQ(refused({first, {.update = 1, .worker = 1, .ticket = 1, .version = 0}}, 2), "");
  EXPECT_NE(refused({first, {.update = 1, .worker = 2, .ticket = 1, .version = 0}}, 2).find("dp is 2"),
            std::string::npos);
  EXPECT_NE(refused({first, {.update = 1, .worker = 0, .ticket = 1, .version = 0}}, 2).find("was busy"),
            std::string::npos);
  EXPECT_NE(refused({first, {.update = 1, .worker = 1, .ticket = 0, .version = 0}}, 2).find("was busy"),
            std::string::npos);
}

// Workers that are lost at any moment, with a ticket, without one or with a gradient that waits, and come back.
TEST(ArrivalOrder, DealsAgainWhatWasLostWithItsWorker) {
  for (const std::int64_t bound : {std::int64_t{-1}, std::int64_t{1}, std::int64_t{3}})
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      constexpr int kWorkers = 4;
      constexpr std::int64_t kUpdates = 120;
      ArrivalOrder order(kWorkers, bound);
      order.start(0);
      std::set<int> computing, away;
      std::set<std::int64_t> applied;
      std::int64_t most = 0, lost = 0;
      for (int turn = 0; order.applied() < kUpdates; ++turn) {
        ASSERT_LT(turn, 100000) << "nothing moves";
        while (const auto begun = order.begin(kUpdates)) {
          EXPECT_EQ(begun->version, order.applied());
          computing.insert(begun->worker);
        }
        const int worker = static_cast<int>(random() % kWorkers);
        if (random() % 4 == 0 && order.is_here(worker)) {
          lost += order.lose(worker).has_value();
          EXPECT_FALSE(order.is_here(worker));
          computing.erase(worker);
          away.insert(worker);
        } else if (random() % 3 == 0 && away.erase(worker) > 0) {
          order.join(worker);
        } else if (computing.erase(worker) > 0) {
          order.arrive(worker);
        }
        while (const auto next = order.next()) {
          const auto one = order.apply();
          ASSERT_TRUE(one);
          EXPECT_EQ(one->worker, *next);
          EXPECT_TRUE(applied.insert(one->ticket).second) << "ticket " << one->ticket << " twice";
          most = std::max(most, one->staleness());
        }
      }
      EXPECT_EQ(std::ssize(applied), kUpdates);
      EXPECT_EQ(*applied.rbegin(), kUpdates - 1);
      EXPECT_EQ(order.under_way(), 0);
      EXPECT_GT(lost, 5);
      if (bound >= 0) {
        EXPECT_LE(most, bound);
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
