// lockstep bench machine under mpirun: processes measure what threads would, and hosts what is between them.
#include <gtest/gtest.h>

#include "spec/machine/machine_spec.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

TEST(BenchMachineUnderMpi, ProcessesMeasureTheirMessages) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun here";
  if (kUnderSanitizer) GTEST_SKIP() << "Open MPI itself leaks";
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "machine.toml").string();
  const std::string command = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 " LOCKSTEP_BINARY
                              " bench machine --out " +
                              file + " > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const MachineSpec m = read_machine(file);
  EXPECT_EQ(m.nodes, 1);
  EXPECT_GT(m.sum_rate, 1e7);
  EXPECT_GT(m.copy_rate, 1e7);
  EXPECT_GT(m.intra_node.latency, 1e-8);
  EXPECT_EQ(m.inter_node, MachineLink{});  // not measured: there is one host
}

}  // namespace
}  // namespace lockstep::tests
