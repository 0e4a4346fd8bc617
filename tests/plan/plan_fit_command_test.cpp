// plan --fit as a person uses it: what it prints can be typed, and does what it says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kFittedRun{"plan",        "--set", "model.preset=llama-1m", "--set",
                                          "data.seq=64", "--set", "train.global_batch=32", "--layout",
                                          "dp=2"};

std::vector<std::string> with_more(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

nlohmann::json fit_json_of(const std::vector<std::string>& more) {
  const Outcome o = run_program(with_more(kFittedRun, with_more({"--json"}, more)));
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out);
}

TEST(PlanFit, NamesASettingThatTakesWhatItSaysWhenItIsTyped) {
  const std::int64_t needed = fit_json_of({})["peak_bytes"];
  for (const double share : {0.9, 0.6, 0.4}) {
    const auto limit = static_cast<std::int64_t>(share * static_cast<double>(needed));
    const Outcome said = run_program(with_more(kFittedRun, {"--fit", fmt::format("{}", limit)}));
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_THAT(said.out, HasSubstr("it does not fit"));
    const std::size_t begin = said.out.find("cheapest     ") + 13;
    std::istringstream words(said.out.substr(begin, said.out.find('\n', begin) - begin));
    const std::vector<std::string> typed{std::istream_iterator<std::string>(words), {}};
    ASSERT_FALSE(typed.empty()) << said.out;
    EXPECT_LE(fit_json_of(typed)["peak_bytes"], limit) << said.out;
    EXPECT_THAT(run_program(with_more(with_more(kFittedRun, typed), {"--fit", fmt::format("{}", limit)})).out,
                HasSubstr(": it fits\n"));
  }
}

TEST(PlanFit, GivesTheSameForPrograms) {
  const nlohmann::json all = fit_json_of({"--fit", "1GiB"});
  EXPECT_EQ(all["limit_bytes"], 1 << 30);
  EXPECT_TRUE(all["asked"]["fits"]);
  EXPECT_EQ(all["asked"], all["cheapest"]);
  EXPECT_TRUE(all["too_large"].empty());
  EXPECT_EQ(all["asked"]["bytes"], fit_json_of({})["peak_bytes"]);

  const std::int64_t limit = all["asked"]["bytes"].get<std::int64_t>() / 2;
  const nlohmann::json half = fit_json_of({"--fit", fmt::format("{}", limit)});
  EXPECT_FALSE(half["asked"]["fits"]);
  EXPECT_LE(half["cheapest"]["bytes"], limit);
  for (const auto& setting : half["too_large"]) {
    EXPECT_GT(setting["bytes"], limit);
    EXPECT_LE(setting["seconds"], half["cheapest"]["seconds"]);
  }
}

TEST(PlanFit, TakesWhatIsFreeHereWhereNoSizeIsGiven) {
  const Outcome o = run_program(with_more(kFittedRun, {"--fit"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("per rank, which are free here\n"));
  EXPECT_THAT(o.out, HasSubstr(": it fits\n"));
  const Outcome none = run_program(with_more(kFittedRun, {"--fit", "1MiB"}));
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("nothing fits into 1.00 MiB per rank: the least that was found is "));
}

}  // namespace
}  // namespace lockstep::tests
