// lockstep bench disk: rates of every setting, and what offloaded state gets of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

TEST(BenchDisk, MeasuresEverySettingAndLeavesNothing) {
  const TemporaryFolder folder;
  const Outcome o = run_program({"bench", "disk", folder.path().string(), "--size", "64", "--rounds", "1", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto found = nlohmann::json::parse(o.out);
  EXPECT_EQ(found["rates"].size(), 12);
  for (const auto& rate : found["rates"])
    for (const char* way : {"read", "write", "both"}) EXPECT_GT(rate[way], 0) << rate;
  EXPECT_GT(found["windows"]["value"], 0);
  EXPECT_GT(found["windows"]["ceiling"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(BenchDisk, RefusesWhatIsNoFolder) {
  const Outcome o = run_program({"bench", "disk", "/no/such/folder"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, testing::HasSubstr("is no folder; name a folder on the disk to be measured"));
}

}  // namespace
}  // namespace lockstep::tests
