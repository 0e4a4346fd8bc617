// --ranks, --layout and --set layout.KEY: one meaning in every command.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class LayoutOptions : public ::testing::Test {
 protected:
  LayoutOptions() {
    std::ofstream(folder_ / "run.toml") << tiny_run(12, 30) << "[layout]\ncp = 2\ntp = 2\nmicro = 2\n";
  }
  Outcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1, folder_ / "run.toml");
    return run_program(arguments);
  }
  std::string layout_in(const std::string& out) const {
    return to_text(read_run_file(folder_ / out + "/run.toml").layout);
  }
  TemporaryFolder folder_;
};

TEST_F(LayoutOptions, RanksAreAllRanksAlsoOfARunThatIsResumed) {
  const std::string out = folder_ / "a";
  const Outcome begun =
      run({"train", "--out", out, "--ranks", "8", "--set", "train.steps=2", "--set", "train.eval_every=0"});
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_EQ(layout_in("a"), "dp=2,cp=2,tp=2,micro=2");
  // Its run file has dp = 2, cp = 2 and tp = 2: four ranks are four, and not 16.
  const Outcome resumed = run_program({"train", "--resume", out, "--ranks", "4", "--set", "train.steps=3"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(layout_in("a"), "cp=2,tp=2,micro=2");
  EXPECT_EQ(losses_in(out).size(), 3u);
  const Outcome refused = run_program({"train", "--resume", out, "--ranks", "6", "--set", "train.steps=4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--ranks 6: cp times tp (4) does not divide 6 ranks; use --ranks 4 or --ranks 8"));
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
}

TEST_F(LayoutOptions, MeanTheSameToTrainPlanCompareAndVerify) {
  struct Case {
    std::vector<std::string> options;
    std::string layout;  // "": refused, with these words
    std::string words = {};
  };
  const std::vector<Case> cases{
      {{"--layout", "tp=2"}, "tp=2"},  // micro is no longer the file's
      {{"--layout", "tp=2", "--set", "layout.micro=3"}, "tp=2,micro=3"},
      {{"--layout", "zero=1,dp=2", "--set", "layout.dp=3"}, "dp=3,zero=1"},
      {{"--layout", "tp=2,zero=1", "--ranks", "4"}, "dp=2,tp=2,zero=1"},
      {{"--layout", "tp=2", "--ranks", "3"},
       "",
       "--ranks 3: tp (2) does not divide 3 ranks; use --ranks 2 or --ranks 4"},
      {{"--layout", "dp=4", "--ranks", "2"}, "", "--ranks 2: "},
      {{"--layout", "dp=2,dp=4"}, "", "--layout 'dp=2,dp=4': it names 'dp' twice; keep one of the two"},
      {{"--layout", "tp=2", "--set", "layout.micro=x"}, "", "--set layout.micro=x"},
      {{"--layout", "dp=2", "--set", "layout.shard=2"}, "", "--set layout.shard=2: 'shard' does nothing"},
  };
  int number = 0;
  for (const Case& c : cases)
    for (const std::string command : {"train", "plan", "compare", "verify"}) {
      const bool ranks = std::ranges::find(c.options, "--ranks") != c.options.end();
      if (command == "verify" && ranks) continue;  // which has no such option
      std::vector<std::string> arguments{command};
      arguments.insert(arguments.end(), c.options.begin(), c.options.end());
      const std::string out = fmt::format("{}", ++number);
      if (command == "train") arguments.insert(arguments.end(), {"--out", folder_ / out, "--set", "train.steps=1"});
      if (command == "compare" || command == "verify") arguments.insert(arguments.end(), {"--steps", "1"});
      if (command == "verify") arguments.insert(arguments.end(), {"--precision", "fp64"});
      if (command != "train") arguments.push_back("--json");
      const Outcome o = run(arguments);
      const std::string what = fmt::format("{}: {}", command, fmt::join(c.options, " "));
      EXPECT_EQ(o.code, c.layout.empty() ? 2 : 0) << what << "\n" << o.err;
      if (c.layout.empty()) {
        EXPECT_THAT(o.err, HasSubstr(c.words)) << what;
        EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
        continue;
      }
      if (o.code != 0) continue;
      if (command == "train") {
        EXPECT_EQ(layout_in(out), c.layout) << what;
      } else if (command == "plan") {
        EXPECT_EQ(json::parse(o.out)["layout"], c.layout) << what;
      } else if (command == "compare") {
        EXPECT_EQ(json::parse(o.out)["layouts"][0]["layout"], c.layout) << what;
      } else {
        EXPECT_THAT(o.out, HasSubstr(fmt::format("\"{}\"", c.layout))) << what;
      }
    }
}

// The file's own layout, which does not fit what else is asked for, is not in the way of another.
TEST_F(LayoutOptions, TheFilesLayoutIsNotLookedAtWhereAnotherIsNamed) {
  for (const std::string command : {"plan", "verify", "compare"}) {
    std::vector<std::string> arguments{command, "--layout", "tp=2", "--set", "train.global_batch=3"};
    if (command != "plan") arguments.insert(arguments.end(), {"--steps", "1", "--set", "precision.compute=fp64"});
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 0) << command << o.err;
  }
  EXPECT_EQ(run({"plan", "--set", "train.global_batch=3"}).code, 2);
}

TEST_F(LayoutOptions, HelpSaysSo) {
  for (const char* command : {"train", "plan", "compare"}) {
    const Outcome o = run_program({command, "--help"});
    std::string text;
    for (std::istringstream words(o.out); words >> std::ws;) {
      std::string word;
      words >> word;
      text += word + " ";
    }
    EXPECT_THAT(text, HasSubstr("pp, cp and tp leave of them")) << command;
    EXPECT_THAT(text, HasSubstr("whole layout")) << command;
    EXPECT_THAT(text, HasSubstr("--set layout.KEY changes one key")) << command;
  }
}

}  // namespace
}  // namespace lockstep::tests
