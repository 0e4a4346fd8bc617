// test_mpi: under mpirun, the tests over processes; by itself, the drills, for which it starts mpirun. A failure of any
// rank makes mpirun's exit status non-zero.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/mpi/world.h"
#include "mpi/drill.h"
#include "process_ranks/processes.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::tests;
  ::testing::InitGoogleTest(&argc, argv);
  if (!MpiWorld::launched()) {
    auto& filter = ::testing::GTEST_FLAG(filter);
    if (filter == "*") filter = "Drill*";
    return RUN_ALL_TESTS();
  }
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const ProcessOptions options = options_of(argc, argv, rank ? rank : "");
  if (const std::string drill = argument(argc, argv, "--drill"); !drill.empty())
    return run_drill(drill, argument(argc, argv, "--report"), options);
  MpiWorld world(options);
  return run_tests(argc, argv, world, options);
}
