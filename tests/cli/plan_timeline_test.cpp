// plan --timeline as a user meets it: the plan's bytes, the peak with its tensors, and the same as a picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/plan_timeline.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> planned(std::vector<std::string> more) {
  more.insert(more.begin(), {"plan", "--set", "model.layers=2", "--set", "data.seq=32", "--set", "train.global_batch=8",
                             "--layout", "pp=2,micro=4"});
  return more;
}

TEST(PlanTimeline, TellsThePlansPeakAndWhatMakesIt) {
  TemporaryFolder folder;
  const nlohmann::json plan = nlohmann::json::parse(run_program(planned({"--json"})).out);
  const Outcome o = run_program(planned({"--timeline", "--svg", folder / "memory.svg"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr(fmt::format("memory over one step of rank {}, pp=2,micro=4", plan["rank"].get<int>())));
  std::string digits = std::to_string(plan["peak_bytes"].get<std::int64_t>());
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  EXPECT_THAT(o.out, HasSubstr("= " + digits + " bytes are held from the first step to the last"));
  for (const char* part : {"by phase", "\n  F0 ", "\n  B3 ", "\n  update ", "  < peak", "by tag, at the peak",
                           "what makes the peak, the largest first", "\n  block qkv", "optimizer"})
    EXPECT_THAT(o.out, HasSubstr(part));
  std::ifstream in(folder / "memory.svg");
  const std::string svg{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(svg, HasSubstr("Memory over one step of rank"));
  EXPECT_THAT(svg, HasSubstr(digits + " bytes held"));
  const Outcome other = run_program(planned({"--timeline", "--rank", "0"}));
  EXPECT_THAT(other.out, HasSubstr("memory over one step of rank 0, "));
  EXPECT_THAT(other.out, HasSubstr("embedding"));
}

TEST(PlanTimeline, TablesAddUpToThePeak) {
  const std::string text = run_program(planned({"--timeline"})).out;
  std::istringstream in(text);
  std::string where, at_peak, fullest;
  double shares = 0;
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("at ")) where = line.substr(3);
    if (line.ends_with("  < peak")) at_peak = line;
    if (line.starts_with("  F0 ")) fullest = line;
    if (!line.ends_with('%')) continue;
    shares += std::stod(line.substr(line.rfind(' ')));
    ++rows;
  }
  EXPECT_THAT(at_peak, testing::EndsWith(" " + where + "  < peak")) << text;
  EXPECT_THAT(fullest, HasSubstr(" of block.0, ")) << "at the end of a forward, not where it begins";
  EXPECT_EQ(rows, 16) << "the largest, and one row for the others\n" << text;
  EXPECT_NEAR(shares, 100, 0.05 * rows) << text;
  EXPECT_THAT(text, HasSubstr("\n  block qkv x 2 ")) << "of two micro-batches";
}

TEST(PlanTimeline, PhasesHaveEveryActionOnce) {
  using Kind = ActionKind;
  const std::vector<Action> actions{{Kind::gather, 0},
                                    {Kind::forward, 0, 0},
                                    {Kind::forward, 1, 0},
                                    {Kind::backward_input, 1, 0},
                                    {Kind::backward_weight, 1, 0},
                                    {Kind::reduce, 1},
                                    {Kind::forward, 0, 1},
                                    {Kind::norm},
                                    {Kind::update, 0}};
  std::string text;
  std::size_t next = 0;
  for (const MemoryPhase& phase : memory_phases(actions)) {
    EXPECT_EQ(phase.first, next);
    next = phase.last + 1;
    text += fmt::format("{}:{}-{} ", phase.name, phase.first, phase.last);
  }
  EXPECT_EQ(next, actions.size());
  EXPECT_EQ(text, "F0:0-2 B0:3-5 F1:6-6 update:7-8 ");
}

}  // namespace
}  // namespace lockstep::tests
