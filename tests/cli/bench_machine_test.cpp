// lockstep bench machine: the file that it writes reads back, and says what was measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/machine/machine_spec.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using testing::HasSubstr;

TEST(BenchMachine, WritesAFileThatReadsBackWithNumbersThatCanBe) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "machine.toml").string();
  const Outcome o =
      run_program({"bench", "machine", "--out", file, "--name", "here", "--disk", folder.path().string()});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("products, fp32"));
  const MachineSpec m = read_machine(file);
  EXPECT_EQ(m.name, "here");
  EXPECT_EQ(m.kind, MachineSpec::Kind::threads);
  EXPECT_EQ(parse_machine(to_toml(m), "again"), m);
  // A core of anything that this runs on, however busy it is.
  for (const double peak : {m.peaks.fp64, m.peaks.fp32, m.peaks.bf16, m.peaks.fp16}) {
    EXPECT_GT(peak, 1e8);
    EXPECT_LT(peak, 1e12);
  }
  ASSERT_EQ(m.copies.size(), 5);
  for (const MachineSpec::CopyRate& copy : m.copies) {
    EXPECT_GT(copy.rate, 1e8) << copy.size;
    EXPECT_LT(copy.rate, 1e12) << copy.size;
  }
  for (const std::string_view kind : kCopyLikeKernels) EXPECT_TRUE(m.kernels.contains(std::string(kind))) << kind;
  EXPECT_GT(m.launch, 0);
  EXPECT_LT(m.launch, 1e-3);
  EXPECT_GT(m.products.best, 0.3);
  EXPECT_GT(m.disk_read, 0);
  EXPECT_GT(m.disk_write, 0);
  if (m.devices_per_node > 1) {
    EXPECT_GT(m.sum_rate, 1e7);
    EXPECT_GT(m.copy_rate, 1e7);
    EXPECT_GT(m.intra_node.latency, 0);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // the file and nothing else
}

TEST(BenchMachine, EveryMistakeIsOneLineWithARemedy) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.begin(), {"bench", "machine"});
    const Outcome o = run_program(arguments);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(says));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  };
  refused({"--out", "/no/such/folder/machine.toml"}, "--out '/no/such/folder/machine.toml'");
  refused({"--out", "/dev/null"}, "--out '/dev/null'");
  refused({"--disk", "/no/such/folder"}, "is no folder; name a folder on the disk to be measured");
  refused({"--device", "tpu"}, "--device 'tpu'");
  const Outcome o = run_program({"bench", "--rounds", "3", "machine"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--rounds is of lockstep bench, not of bench machine"));
}

}  // namespace
}  // namespace lockstep::tests
