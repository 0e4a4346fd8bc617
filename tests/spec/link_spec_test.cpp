// A link as text: either order, every unit, and refusals that say what to give.
#include "spec/machine/link_spec.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::tests {
namespace {

TEST(LinkSpec, IsABandwidthAndALatencyInEitherOrder) {
  const auto expect = [](const char* text, double rate, double latency) {
    const LinkSpec link = parse_link(text, "--link");
    EXPECT_NEAR(link.bytes_per_second, rate, 1e-9 * rate) << text;
    EXPECT_NEAR(link.latency_seconds, latency, 1e-9 * latency) << text;
  };
  expect("1GB/s,50us", 1e9, 50e-6);
  expect("50us,1GB/s", 1e9, 50e-6);
  expect("2.5MB/s,1ms", 2.5e6, 1e-3);
  expect("10Gbit/s,0.25s", 1.25e9, 0.25);
  expect("100Mbit/s,700ns", 12.5e6, 700e-9);
  expect("0s,1e3GB/s", 1e12, 0);
}

TEST(LinkSpec, RefusesWhatIsNoLinkInOneLine) {
  const char* const both = "; give a bandwidth (GB/s, MB/s, Gbit/s) and a latency (s, ms, us, ns), as in 1GB/s,50us";
  const std::pair<const char*, std::string> cases[] = {
      {"", "--link ''" + std::string(both)},
      {"1GB/s", "--link '1GB/s'" + std::string(both)},
      {"1GB/s,2GB/s", "--link '1GB/s,2GB/s'" + std::string(both)},
      {"1us,2us", "--link '1us,2us'" + std::string(both)},
      {"1GB/s,50us,1us", "--link '1GB/s,50us,1us'" + std::string(both)},
      {"1GB,50us", "--link '1GB'" + std::string(both)},
      {"1GB/s,50", "--link '50'" + std::string(both)},
      {"GB/s,50us", "--link 'GB/s'" + std::string(both)},
      {"1GB/s, 50us", "--link ' 50us'" + std::string(both)},
      {"1 GB/s,50us", "--link '1 GB/s'" + std::string(both)},
      {"infGB/s,50us", "--link 'infGB/s'" + std::string(both)},
      {"1GB/s,nans", "--link 'nans'" + std::string(both)},
      {"0GB/s,50us", "--link the bandwidth of '0GB/s,50us'; give it from 0.1MB/s to 1000000GB/s"},
      {"-1GB/s,50us", "--link the bandwidth of '-1GB/s,50us'; give it from 0.1MB/s to 1000000GB/s"},
      {"1e9GB/s,50us", "--link the bandwidth of '1e9GB/s,50us'; give it from 0.1MB/s to 1000000GB/s"},
      {"1GB/s,2s", "--link the latency of '1GB/s,2s'; give it from 0s to 1s"},
      {"1GB/s,-1us", "--link the latency of '1GB/s,-1us'; give it from 0s to 1s"},
  };
  for (const auto& [text, says] : cases) {
    try {
      parse_link(text, "--link");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), says);
      EXPECT_EQ(error.code(), ExitCode::usage) << text;
    }
  }
}

TEST(LinkSpec, IsToldInUnitsThatFit) {
  EXPECT_EQ(to_text(parse_link("8Gbit/s,50us", "")), "1 GB/s and 50 us per message");
  EXPECT_EQ(to_text(parse_link("0.5MB/s,1500us", "")), "0.5 MB/s and 1.5 ms per message");
}

}  // namespace
}  // namespace lockstep::tests
