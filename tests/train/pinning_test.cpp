// Ranks of one host keep to cores of their own.
#include "train/pinning.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace lockstep::tests {
namespace {

struct Seat {
  bool taken = false;
  cpu_set_t cores;
  int usable = 0;
};

// In a thread of its own: what is taken is not given back.
Seat sit(int rank, int ranks) {
  Seat seat;
  std::thread([&] {
    seat.taken = take_share_of_cores(rank, ranks);
    seat.usable = usable_cores();
    CPU_ZERO(&seat.cores);
    sched_getaffinity(0, sizeof(seat.cores), &seat.cores);
  }).join();
  return seat;
}

TEST(Pinning, SharesAreApartAndTogetherAllCores) {
  const int all = usable_cores();
  if (all < 2 || !sit(0, 2).taken) GTEST_SKIP() << "SKIPPED: one core, or nothing here that places threads";
  for (int ranks = 2; ranks <= std::min(all, 4); ++ranks) {
    int sum = 0;
    cpu_set_t before;
    CPU_ZERO(&before);
    for (int rank = 0; rank < ranks; ++rank) {
      const Seat seat = sit(rank, ranks);
      EXPECT_TRUE(seat.taken);
      EXPECT_EQ(seat.usable, CPU_COUNT(&seat.cores));
      cpu_set_t both;
      CPU_AND(&both, &before, &seat.cores);
      EXPECT_EQ(CPU_COUNT(&both), 0) << "rank " << rank << " of " << ranks << " sits on another's core";
      CPU_OR(&before, &before, &seat.cores);
      sum += seat.usable;
    }
    EXPECT_EQ(sum, all);
  }
  EXPECT_EQ(usable_cores(), all) << "only the thread that asked has moved";
}

TEST(Pinning, LeavesThreadsAloneWhereThereIsNoShare) {
  const int all = usable_cores();
  for (const auto& [rank, ranks] : {std::pair{0, 1}, std::pair{0, all + 1}, std::pair{2, 2}, std::pair{-1, 2}}) {
    const Seat seat = sit(rank, ranks);
    EXPECT_FALSE(seat.taken) << rank << " of " << ranks;
    EXPECT_EQ(seat.usable, all);
  }
}

}  // namespace
}  // namespace lockstep::tests
