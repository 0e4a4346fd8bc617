// What bench machine writes predicts what it has measured: the fitted curve of products, and messages that cost
// something.
#include "bench/machine_bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/median.h"

namespace lockstep::tests {
namespace {

TEST(MachineBench, ItsFilePredictsTheProductsThatItMeasured) {
  double typical = 1, large = 1;
  // A busy machine makes single times longer: one try of three is enough.
  for (int attempt = 0; attempt < 3 && (typical > 0.15 || large > 0.3); ++attempt) {
    const MachineBench bench = measure_this_machine({});
    const MachineSpec read = parse_machine(to_toml(bench.machine), "again");
    ASSERT_EQ(read, bench.machine);
    std::vector<double> errors;
    for (const ProductTiming& p : bench.products) errors.push_back(std::abs(bench.predicted(p) / p.seconds - 1));
    ASSERT_EQ(errors.size(), 13U);
    typical = median(errors);
    large = errors.back();  // the largest product
    for (std::size_t i = 0; i < errors.size(); ++i)
      RecordProperty("error_" + std::to_string(i), std::to_string(errors[i]));
  }
  EXPECT_LE(typical, 0.15);
  EXPECT_LE(large, 0.3);
}

}  // namespace
}  // namespace lockstep::tests
