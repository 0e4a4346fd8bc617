// lockstep bench machine on two hosts (tools/two_hosts) with a cable of 200 Mbit/s: the file has the cable's rate.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "spec/machine/machine_spec.h"
#include "support/drill.h"

namespace lockstep::tests {
namespace {

constexpr double kCable = 200e6 / 8;  // bytes per second, each way

// Both ways at once the sends of a pair may take turns (docs/choosing.md); what one host sends alone never does.
TEST(TwoHostsMachine, HasTheCablesRateAndADeviceForEachRank) {
  if (const std::string why = no_drill_here(true); !why.empty()) GTEST_SKIP() << why << ": two hosts need root";
  if (std::system("ip netns list >/dev/null 2>&1 && tc -V >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no `ip` or no `tc` here: two hosts with a slow cable need iproute2";
  const TemporaryFolder folder;
  const std::string file = folder / "two.toml";
  const std::string limited =
      "tc qdisc replace dev cable root tbf rate 200mbit burst 16kb latency 500ms && exec \"$@\"";
  const std::string command =
      fmt::format("'{}/tools/two_hosts' -n 2 sh -c '{}' sh '{}' bench machine --out '{}' >'{}' 2>&1",
                  LOCKSTEP_SOURCE_DIR, limited, LOCKSTEP_BINARY, file, folder / "said");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  const MachineSpec m = read_machine(file);
  EXPECT_EQ(m.kind, MachineSpec::Kind::devices);
  EXPECT_EQ(m.nodes, 2);
  EXPECT_EQ(m.devices_per_node, 1);
  const MachineLink& link = m.inter_node;
  std::printf(
      "%.3g B/s, latency %.3g s, of a collective %.3g s, shares: sums %.2f, one way %.2f, both ways %.2f; "
      "work is %.2f slower beside messages\n",
      link.bandwidth, link.latency, link.collective_latency, link.efficiency, link.pair_efficiency, link.both_ways,
      m.overlap_slowdown);
  // Headers of packets take 4 %; a machine that is busy takes more.
  EXPECT_GT(link.bandwidth, 0.75 * kCable);
  EXPECT_LT(link.bandwidth, 1.02 * kCable);
  EXPECT_GT(link.pair_efficiency, 0.75);
  EXPECT_GT(link.efficiency, 0.05);
  EXPECT_GT(link.latency, 0);
  EXPECT_GT(link.collective_latency, 0);

  const auto plan = [&](const std::string& layout) {
    return run_program({"plan", "--json", "--machine", file, "--set", "model.preset=llama-1m", "--set", "data.seq=256",
                        "--set", "train.global_batch=8", "--layout", layout});
  };
  const Outcome fits = plan("tp=2");
  ASSERT_EQ(fits.code, 0) << fits.err;
  EXPECT_GT(nlohmann::json::parse(fits.out)["exposed_seconds"]["tp"].get<double>(), 0);
  EXPECT_THAT(plan("dp=4").err, ::testing::HasSubstr("2 devices (2 nodes of 1)"));
}

}  // namespace
}  // namespace lockstep::tests
