// A build without libsodium: ranks that would have to meet over the network are refused by its name, and at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/launch_processes.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WithoutEncryption, RanksUnderALaunchersVariablesAreRefusedByTheLibrarysName) {
  TemporaryFolder folder;
  const auto begin = control::Clock::now();
  for (const int rank : {0, 1}) {
    try {
      ProcessWorld world({rank, 2, rank, "127.0.0.1", 29500}, {.folder = folder.path()});
      ADD_FAILURE() << "rank " << rank << " has met somebody";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::environment);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("built without libsodium; install libsodium-dev and build again"),
                                      Not(HasSubstr("\n"))));
    }
  }
  EXPECT_LT(control::seconds_since(begin), 1);
  EXPECT_FALSE(control::has_encryption());
}

TEST(WithoutEncryption, EverythingElseWorks) {
  TemporaryFolder folder;
  const Outcome outcome = run_program(
      {"train", "--ranks", "2", "--out", folder / "run", "--set", "train.steps=2", "--set", "optim.warmup=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace lockstep::tests
