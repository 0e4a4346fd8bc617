// What tools/demo claims, at a size that takes seconds: layouts agree to ten digits, a resumed run continues with the
// numbers of an unbroken one, a step can be drawn, and stories are held against their grammar. The whole demo, with a
// model that writes sentences, is a test of `make test-slow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data/story_grammar.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Demo : public ::testing::Test {
 protected:
  // The built-in example, small, in fp64.
  static Outcome run(std::vector<std::string> command, const std::vector<std::string>& more) {
    for (const char* set : {"model.layers=4", "model.width=32", "model.heads=4", "model.kv_heads=4",
                            "model.ffn_width=64", "data.seq=32", "train.global_batch=8", "train.eval_every=0",
                            "train.save_every=0", "optim.warmup=2", "precision.compute=fp64", "run.threads=1"})
      command.insert(command.end(), {"--set", set});
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command);
  }
  std::string text_in(const std::string& file) const {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  // Stopped after three of six steps, whose rates do not depend on how many there are, and resumed.
  void train_both() const {
    const auto train = [&](const std::string& out, const char* steps, const std::vector<std::string>& more) {
      std::vector<std::string> all{"--set", "optim.schedule=constant", "--set", steps};
      all.insert(all.end(), more.begin(), more.end());
      const Outcome o = run({"train", "--out", folder_ / out}, all);
      ASSERT_EQ(o.code, 0) << o.err;
    };
    train("unbroken", "train.steps=6", {});
    train("resumed", "train.steps=3", {"--layout", "dp=2,tp=2"});
    train("resumed", "train.steps=6", {"--resume", "--layout", "dp=2,pp=2,zero=3,micro=4", "--set", "run.trace=1"});
  }
  TemporaryFolder folder_;
};

TEST_F(Demo, SixLayoutsHaveOneLossToTenDigitsAndTheMemoryThatWasPredicted) {
  std::vector<std::string> more{"--steps", "2", "--brief"};
  const std::vector<std::string> layouts = {
      "dp=1", "dp=4", "dp=4,zero=3", "tp=4", "pp=4", "cp=4", "dp=2,pp=2,cp=2,tp=2,zero=3"};
  for (const std::string& layout : layouts) more.insert(more.end(), {"--layout", layout + ",micro=2"});
  const Outcome o = run({"compare"}, more);
  ASSERT_EQ(o.code, 0) << o.err << o.out;
  EXPECT_THAT(o.out, Not(HasSubstr("NOT AS PLANNED")));
  EXPECT_THAT(o.out, Not(HasSubstr("tokens/s")));
  std::istringstream lines(o.out);
  std::set<std::string> losses;
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 110u) << line;
    std::istringstream words(line.starts_with("  one rank") ? "  dp=1" + line.substr(10) : line);
    std::string layout, ranks, loss, memory, predicted;
    words >> layout >> ranks >> loss >> memory >> predicted;
    if (loss.find('.') == std::string::npos || std::ranges::find(layouts, layout) == layouts.end()) continue;
    ++rows;
    losses.insert(loss);
    EXPECT_EQ(memory, predicted) << line;
    EXPECT_TRUE(line.ends_with(" =")) << line;
  }
  EXPECT_EQ(rows, layouts.size()) << o.out;
  ASSERT_EQ(losses.size(), 1u) << o.out;
  EXPECT_GE(losses.begin()->size(), 11u);  // ten digits and the point
}

TEST_F(Demo, ResumedUnderAnotherLayoutARunContinuesWithTheSameNumbers) {
  train_both();
  const Outcome o = run_program({"inspect", folder_ / "resumed", "--beside", folder_ / "unbroken"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string step, mine, other;
    words >> step >> mine >> other;
    if (mine.find('.') == std::string::npos) continue;
    EXPECT_EQ(step, std::to_string(++steps));
    EXPECT_EQ(mine, other) << line;
  }
  EXPECT_EQ(steps, 6) << o.out;
  EXPECT_THAT(o.out, HasSubstr("6 steps, equal"));
  // Another run is told apart.
  const Outcome trained = run({"train", "--out", folder_ / "other"},
                              {"--set", "train.steps=6", "--set", "train.seed=2", "--set", "optim.schedule=constant"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome apart = run_program({"inspect", folder_ / "other", "--beside", folder_ / "unbroken"});
  EXPECT_THAT(apart.out, ::testing::ContainsRegex("6 steps, equal to [0-9]e-0[0-4]"));
  EXPECT_EQ(run_program({"inspect", folder_ / "resumed", "--beside", folder_ / "none"}).code, 4);
}

TEST_F(Demo, AStepIsDrawnWithAllRanksAndItsMemory) {
  train_both();
  const std::string svg = folder_ / "step.svg";
  const Outcome o = run_program({"inspect", folder_ / "resumed", "--svg", svg});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, svg + "\n");
  const std::string picture = text_in(svg);
  for (const char* part : {"rank 0<", "rank 3<", "block.0 forward, micro-batch 0", "block.0 backward weight",
                           "wait for", "activation: ", "gathered: ", "optimizer: ", "</svg>"})
    EXPECT_THAT(picture, HasSubstr(part));
  const Outcome without = run_program({"inspect", folder_ / "unbroken", "--svg", svg});
  EXPECT_EQ(without.code, 4);
  EXPECT_THAT(without.err, HasSubstr("trace.json"));
}

TEST_F(Demo, StoriesAreHeldAgainstTheirGrammar) {
  const std::string file = folder_ / "stories.txt";
  const auto verify = [&](const std::string& text, std::vector<std::string> more) {
    std::ofstream(file) << text;
    more.insert(more.begin(), {"verify", "--stories", file});
    return run_program(more);
  };
  const std::string good = write_story(9, 0) + "\n\n" + write_story(9, 1) + "\n";
  const Outcome all = verify(good, {});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("(100.0%), 2 of 2 stories hold together"));
  const Outcome some = verify(good + "\nMia are here.\n", {"--json"});
  EXPECT_EQ(some.code, 1);
  const auto json = nlohmann::json::parse(some.out);
  EXPECT_EQ(json["accepted"].get<int>() + 1, json["sentences"].get<int>());
  EXPECT_EQ(json["first_refused"], "Mia are here.");
  EXPECT_EQ(verify(good + "\nMia are here.\n", {"--least", "0.9"}).code, 0);
  EXPECT_EQ(verify("nothing", {}).code, 4);
  EXPECT_EQ(verify(good, {"--least", "2"}).code, 2);
  EXPECT_EQ(verify(good, {"--layout", "dp=2"}).code, 2);
  EXPECT_EQ(run_program({"verify", "--stories", folder_ / "none.txt"}).code, 4);
}

}  // namespace
}  // namespace lockstep::tests
