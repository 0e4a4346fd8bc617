// Who has come to the start of MPI, before it has started, as the files of one host's processes say. Run by itself.
#include "comm/mpi/launch_registry.h"

#include <gmock/gmock.h>

#include <map>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using mpi::LaunchRegistry;

class DrillLaunchRegistry : public ::testing::Test {
 protected:
  // A process of a job, `here` of whose ranks are on this host.
  LaunchRegistry process(int rank, int ranks, int here, const std::string& job = "17") const {
    const std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                                          {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(here)},
                                                          {"PMIX_NAMESPACE", job},
                                                          {"PMIX_SERVER_TMPDIR", folder_.path()}};
    return LaunchRegistry([&](const char* name) {
      const auto at = variables.find(name);
      return at == variables.end() ? nullptr : at->second.c_str();
    });
  }
  TemporaryFolder folder_;
};

TEST_F(DrillLaunchRegistry, NamesWhoHasNotCome) {
  for (const int rank : {0, 1, 3}) process(rank, 12, 12).will_join();
  EXPECT_EQ(process(0, 12, 12).missing(), "ranks 2, 4-11 have not come");
  for (const int rank : {2, 4, 5, 6, 7, 8, 9, 11}) process(rank, 12, 12).will_join();
  EXPECT_EQ(process(3, 12, 12).missing(), "rank 10 has not come");
  process(10, 12, 12).will_join();
  EXPECT_EQ(process(3, 12, 12).missing(), "all ranks have come, and it has not ended");
  EXPECT_EQ(process(0, 2, 2, "18").missing(), "ranks 0-1 have not come") << "of another job";
}

TEST_F(DrillLaunchRegistry, OfSeveralHostsSaysWhatIsKnownHere) {
  for (const int rank : {0, 2}) process(rank, 4, 2).will_join();
  EXPECT_EQ(process(0, 4, 2).missing(),
            "of the 2 processes on this host 2 have come (ranks 0, 2), and it waits for others of ranks 1, 3");
}

TEST_F(DrillLaunchRegistry, FindsWhoWillNotJoinAndWhoIsToTell) {
  EXPECT_FALSE(process(1, 12, 12).find_not_joining());
  for (const int rank : {2, 11}) process(rank, 12, 12).will_join();
  EXPECT_FALSE(process(2, 12, 12).find_not_joining());
  process(10, 12, 12).will_not_join("lockstep plan");
  const auto absent = process(2, 12, 12).find_not_joining();
  ASSERT_TRUE(absent);
  EXPECT_EQ(absent->rank, 10);
  EXPECT_EQ(absent->command, "lockstep plan");
  EXPECT_TRUE(process(2, 12, 12).is_first_here());
  EXPECT_FALSE(process(11, 12, 12).is_first_here()) << "2 comes before 11, whatever their names' order";
  EXPECT_FALSE(process(2, 12, 12, "18").find_not_joining()) << "of another job";
}

// What a launcher does not say is not known: then the deadline alone ends the wait.
TEST_F(DrillLaunchRegistry, WithoutAFolderNobodyIsNamed) {
  const LaunchRegistry nothing([](const char*) { return nullptr; });
  nothing.will_join();
  nothing.will_not_join("lockstep plan");
  EXPECT_FALSE(nothing.find_not_joining());
  EXPECT_EQ(nothing.missing(), "not all of its processes have come");
}

}  // namespace
}  // namespace lockstep::tests
