// Ranks of one host keep to cores of their own.
#include "train/pinning.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace lockstep::tests {
namespace {

struct Pinned {
  bool taken = false;
  cpu_set_t cores;
  int usable = 0;
};

// In a thread of its own: what is taken is not given back.
Pinned pin(int rank, int ranks) {
  Pinned pinned;
  std::thread([&] {
    pinned.taken = take_share_of_cores(rank, ranks);
    pinned.usable = usable_cores();
    CPU_ZERO(&pinned.cores);
    sched_getaffinity(0, sizeof(pinned.cores), &pinned.cores);
  }).join();
  return pinned;
}

TEST(Pinning, SharesAreApartAndTogetherAllCores) {
  const int all = usable_cores();
  if (all < 2 || !pin(0, 2).taken) GTEST_SKIP() << "SKIPPED: one core, or nothing here that places threads";
  for (int ranks = 2; ranks <= std::min(all, 4); ++ranks) {
    int sum = 0;
    cpu_set_t before;
    CPU_ZERO(&before);
    for (int rank = 0; rank < ranks; ++rank) {
      const Pinned pinned = pin(rank, ranks);
      EXPECT_TRUE(pinned.taken);
      EXPECT_EQ(pinned.usable, CPU_COUNT(&pinned.cores));
      cpu_set_t both;
      CPU_AND(&both, &before, &pinned.cores);
      EXPECT_EQ(CPU_COUNT(&both), 0) << "rank " << rank << " of " << ranks << " sits on another's core";
      CPU_OR(&before, &before, &pinned.cores);
      sum += pinned.usable;
    }
    EXPECT_EQ(sum, all);
  }
  EXPECT_EQ(usable_cores(), all) << "only the thread that asked has moved";
}

TEST(Pinning, LeavesThreadsAloneWhereThereIsNoShare) {
  const int all = usable_cores();
  for (const auto& [rank, ranks] : {std::pair{0, 1}, std::pair{0, all + 1}, std::pair{2, 2}, std::pair{-1, 2}}) {
    const Pinned pinned = pin(rank, ranks);
    EXPECT_FALSE(pinned.taken) << rank << " of " << ranks;
    EXPECT_EQ(pinned.usable, all);
  }
}

}  // namespace
}  // namespace lockstep::tests
