// Workers: every item once, errors to the caller, loop after loop.
#include "tensor/cpu/workers.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"

namespace lockstep::cpu {
namespace {

class WorkersOf : public ::testing::TestWithParam<int> {
 protected:
  Workers workers_{GetParam()};
};

TEST_P(WorkersOf, DoEveryItemOnce) {
  EXPECT_EQ(workers_.threads(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
    workers_.each(count, [&](std::int64_t item, int worker) {
      ++done[static_cast<std::size_t>(item)];
      EXPECT_GE(worker, 0);
      EXPECT_LT(worker, GetParam());
    });
    for (std::int64_t i = 0; i < count; ++i)
      EXPECT_EQ(done[static_cast<std::size_t>(i)], 1) << "item " << i << " of " << count;
  }
}

TEST_P(WorkersOf, DoManyRoundsAndSeeWhatTheCallerWroteBetween) {
  std::int64_t base = 0;
  std::vector<std::int64_t> values(5);
  for (int round = 0; round < 3000; ++round) {
    base = round;  // not atomic: each loop must see what was written before it, and the caller what the loop wrote
    workers_.each(5, [&](std::int64_t item, int) { values[static_cast<std::size_t>(item)] = base + item; });
    for (std::int64_t i = 0; i < 5; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], round + i);
  }
}

TEST_P(WorkersOf, NeverLendOneScratchToTwoItemsAtOnce) {
  std::vector<std::atomic<bool>> taken(static_cast<std::size_t>(GetParam()));
  std::atomic<int> clashes = 0;
  workers_.each(2000, [&](std::int64_t, int worker) {
    if (taken[static_cast<std::size_t>(worker)].exchange(true)) ++clashes;
    taken[static_cast<std::size_t>(worker)].store(false);
  });
  EXPECT_EQ(clashes, 0);
}

TEST_P(WorkersOf, GiveAnErrorToTheCallerAndGoOn) {
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(workers_.each(100,
                               [&](std::int64_t item, int) {
                                 if (item == round) throw std::runtime_error("no");
                               }),
                 std::runtime_error);
    std::atomic<int> done = 0;
    workers_.each(10, [&](std::int64_t, int) { ++done; });
    ASSERT_EQ(done, 10);
  }
}

TEST_P(WorkersOf, ThrowOneOfManyErrors) {
  EXPECT_THROW(workers_.each(100, [](std::int64_t, int) { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_NO_THROW(workers_.each(100, [](std::int64_t, int) {}));
}

INSTANTIATE_TEST_SUITE_P(Threads, WorkersOf, ::testing::Values(1, 2, 3, 5));

TEST(Workers, StartAndStopWithoutWork) {
  for (int i = 0; i < 50; ++i) Workers workers(1 + i % 5);
}

TEST(Workers, AreAtLeastOne) { EXPECT_THROW(Workers(0), ProgramError); }

TEST(Workers, OfSeveralOwnersDoNotMeet) {
  std::vector<std::thread> owners;
  std::atomic<std::int64_t> total = 0;
  for (int owner = 0; owner < 3; ++owner)
    owners.emplace_back([&] {
      Workers workers(2);
      for (int round = 0; round < 200; ++round) workers.each(10, [&](std::int64_t item, int) { total += item; });
    });
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(total, 3 * 200 * 45);
}

}  // namespace
}  // namespace lockstep::cpu
