// bench comm over a simulated link: a call takes the time of the link's arithmetic, whatever the algorithm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

constexpr double kLatency = 3e-3, kRate = 100e6;  // --link 100MB/s,3ms

struct LinkTime {
  double measured, stated;  // seconds of a call, and what the bench says that the link takes
};

// By algorithm, of an all-reduce.
std::map<std::string, LinkTime> all_reduces(int ranks, const std::string& size) {
  const Outcome o = run_program({"bench", "comm", "--json", "--seconds", "0", "--ranks", std::to_string(ranks),
                                 "--sizes", size, "--link", "100MB/s,3ms"});
  EXPECT_EQ(o.code, 0) << o.err;
  std::map<std::string, LinkTime> times;
  for (const auto& row : nlohmann::json::parse(o.out)) times[row["algorithm"]] = {row["seconds"], row["link_seconds"]};
  return times;
}

// Never less than the arithmetic says; more only as far as a busy machine wakes its threads late. A try of three is
// enough for that.
void expect_link_times(int ranks, std::int64_t bytes, const std::string& size,
                       const std::map<std::string, double>& steps) {
  const double moved = 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / kRate;
  bool near = false;
  for (int attempt = 0; attempt < 3 && !near; ++attempt) {
    const std::map<std::string, LinkTime> times = all_reduces(ranks, size);
    ASSERT_EQ(times.size(), steps.size());
    near = true;
    for (const auto& [algorithm, count] : steps) {
      const double expected = count * kLatency + moved;
      const auto& [measured, stated] = times.at(algorithm);
      EXPECT_NEAR(stated, expected, 1e-9) << algorithm;
      EXPECT_GE(measured, expected) << algorithm;
      fmt::print("{} ranks, {}, {}: {:.1f} ms by arithmetic, {:.1f} measured\n", ranks, size, algorithm, expected * 1e3,
                 measured * 1e3);
      near = near && measured <= 1.3 * expected + 4e-3;
    }
  }
  EXPECT_TRUE(near) << "three times far more than the link's time";
}

// The bytes are the same for all: 2 (n - 1) / n of them. The latencies are 2 by everybody with everybody, 2 (n - 1)
// round a ring, and 2 log2(n) along a tree.
TEST(SimulatedLinkBench, AnAllReduceTakesItsBytesAndItsLatencies) {
  expect_link_times(4, 1 << 20, "1MiB", {{"canonical", 2}, {"ring", 6}, {"tree", 4}});
}

TEST(SimulatedLinkBench, LatenciesAreAllThatASmallMessageTakes) {
  expect_link_times(8, 1 << 10, "1KiB", {{"canonical", 2}, {"ring", 14}, {"tree", 6}});
}

}  // namespace
}  // namespace lockstep::tests
