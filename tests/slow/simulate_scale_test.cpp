// A simulation of 100,000 ranks takes a minute and 4 GiB at most, on one core.
//
// Times are of the processor, of the program as a user runs it: other work on the machine is not in them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

double seconds_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct LargeWorld {
  const char* layout;
  int batch, nodes;
  std::vector<std::string> more;
};

TEST(SimulateScale, AHundredThousandRanksWithOnePercentSlowTakeAMinuteAnd4GiB) {
  for (const LargeWorld& world :
       {LargeWorld{"dp=782,pp=16,tp=8,micro=16,zero=1", 782 * 16, 12512, {}},
        LargeWorld{"dp=782,pp=16,tp=8,micro=16,zero=1", 782 * 16, 12512, {"--jitter", "3%", "--steps", "1"}},
        LargeWorld{"dp=12512,tp=8,zero=3", 12512, 12512, {}}}) {
    SCOPED_TRACE(world.layout);
    std::vector<std::string> arguments{"simulate",  "--json",
                                       "--set",     "model.preset=llama3.1-405b",
                                       "--set",     "data.seq=8192",
                                       "--set",     "precision.compute=bf16",
                                       "--set",     fmt::format("train.global_batch={}", world.batch),
                                       "--layout",  world.layout,
                                       "--machine", "h100-sxm",
                                       "--nodes",   fmt::format("{}", world.nodes),
                                       "--slow",    "1%:1.5x"};
    arguments.insert(arguments.end(), world.more.begin(), world.more.end());
    const double before = seconds_of_children();
    const Outcome o = run_program(arguments);
    const double seconds = seconds_of_children() - before;
    ASSERT_EQ(o.code, 0) << o.err;
    const nlohmann::json all = nlohmann::json::parse(o.out);
    EXPECT_GE(all["ranks"], 100'000);
    EXPECT_EQ(all["slow_ranks"], 1001);
    EXPECT_GT(all["slowdown"], 1.0);
    fmt::print("{}: {:.1f} s, {:.2f} GiB, {} kinds of replicas, {} simulated\n", world.layout, seconds,
               static_cast<double>(o.resident_bytes) / (1 << 30), all["kinds"].get<int>(), all["simulated"].get<int>());
    if (kUnderSanitizer) continue;
    EXPECT_LT(seconds, 60);
    EXPECT_LT(o.resident_bytes, std::int64_t{4} << 30);
  }
}

}  // namespace
}  // namespace lockstep::tests
