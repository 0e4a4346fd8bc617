// The link as a run measures it, against one whose rate is known.
#include "train/link_probe.h"

#include <gtest/gtest.h>

#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"

namespace lockstep::tests {
namespace {

TEST(LinkProbe, FindsTheRateAndTheLatencyOfALinkThatIsKnown) {
  constexpr double kRate = 20e6, kLatency = 5e-3;  // slow beside what this machine does by itself
  std::array<std::optional<SimulatedLink>, 2> links;
  for (auto& link : links) link.emplace(kLatency, kRate);
  run_ranks(2, [&](std::unique_ptr<Communicator> comm) {
    SimulatedLink& link = *links[static_cast<std::size_t>(comm->rank())];
    Delayed slow(std::move(comm), link);
    const auto found = probe_link(&slow);
    ASSERT_TRUE(found);
    EXPECT_GE(found->latency, kLatency);
    EXPECT_LT(found->latency, 4 * kLatency);
    EXPECT_LE(found->bytes_per_s, 1.01 * kRate);
    EXPECT_GT(found->bytes_per_s, 0.5 * kRate);
  });
}

TEST(LinkProbe, OfOneRankFindsNone) {
  EXPECT_FALSE(probe_link(nullptr));
  run_ranks(1, [](std::unique_ptr<Communicator> comm) { EXPECT_FALSE(probe_link(comm.get())); });
}

}  // namespace
}  // namespace lockstep::tests
