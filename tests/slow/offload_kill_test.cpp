// Fifty kills in the middle of offloaded updates, of which tests/offload/faulty_disk_test.cpp has three.
#include <gtest/gtest.h>

#include "support/faulty_disk.h"
#include "support/killed_updates.h"

namespace lockstep::tests {
namespace {

TEST(ManyKilledUpdates, AreResumedToTheSameBits) {
  if (const std::string why = no_faulty_disk_here(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(killed_updates(50, "micro=2"), "");
}

}  // namespace
}  // namespace lockstep::tests
