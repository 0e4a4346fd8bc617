// What a run leaves for other programs: TensorBoard's event files, comma-separated values, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/event_files.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Exports : public ::testing::Test {
 protected:
  Exports() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 30); }
  void train(const std::vector<std::string>& more, const std::string& out = "run") const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--quiet", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(all);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  std::vector<Json> metrics() const {
    std::vector<Json> lines;
    std::ifstream in(folder_ / "run/metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<std::filesystem::path> events() const { return event_files(folder_ / "run/tensorboard"); }
  TemporaryFolder folder_;
};

TEST_F(Exports, EventFilesHaveTheNumbersOfMetrics) {
  train({"--layout", "dp=2"});
  ASSERT_EQ(events().size(), 1u);
  std::vector<ReadEvent> all = EventFileReader(events().front()).all();
  all.erase(all.begin(), all.begin() + 2);
  const std::vector<Json> lines = metrics();
  ASSERT_EQ(all.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(all[i].step, lines[i]["step"]);
    EXPECT_EQ(all[i].time, lines[i]["time"]);
    const auto is = [&](const char* tag, const char* field) {
      ASSERT_TRUE(all[i].scalars.contains(tag)) << tag;
      EXPECT_EQ(all[i].scalars.at(tag), lines[i][field].get<float>()) << tag;
    };
    if (lines[i].contains("eval_loss")) {
      is("eval/loss", "eval_loss"), is("eval/accuracy", "eval_accuracy");
      continue;
    }
    is("train/loss", "loss"), is("train/lr", "lr"), is("train/grad_norm", "grad_norm");
    is("speed/tokens_per_s", "tokens_per_s"), is("speed/mfu", "mfu"), is("speed/step_ms", "step_ms");
    double total = 0;
    for (const auto& [use, over] : lines[i]["uses"].items()) total += over["mean_ms"].get<double>();
    for (const auto& [use, over] : lines[i]["uses"].items())
      EXPECT_NEAR(all[i].scalars.at("time/" + use), over["mean_ms"].get<double>() / total, 1e-6) << use;
  }
}

TEST_F(Exports, EventFilesOfAResumedRunReplaceLaterSteps) {
  train({"--set", "train.steps=4"});
  train({"--resume"});
  ASSERT_EQ(events().size(), 2u);
  const std::vector<ReadEvent> later = EventFileReader(events().back()).all();
  EXPECT_EQ(later[1].status, 1);
  EXPECT_EQ(later[1].step, 5);
  EXPECT_EQ(later[2].step, 5);
  train({"--overwrite", "--set", "run.tensorboard=false"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/tensorboard"));
}

TEST_F(Exports, CsvHasEveryNumberOfMetricsDigitForDigit) {
  train({"--layout", "dp=2"});
  std::ofstream(folder_ / "run/metrics.jsonl", std::ios::app) << R"({"step":7,"lo)";  // of a run that is writing
  const Outcome o = run_program({"metrics", folder_ / "run", "--csv"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Outcome file = run_program({"metrics", folder_ / "run", "--csv", "--out", folder_ / "a.csv"});
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(text_of(folder_ / "a.csv"), o.out);
  const auto cells_of = [](std::string row) {
    EXPECT_TRUE(row.ends_with('\r'));
    row.pop_back();
    std::vector<std::string> cells(1);
    for (const char c : row) c == ',' ? cells.emplace_back() : cells.back() += c;
    return cells;
  };
  std::istringstream in(o.out);
  std::string row;
  std::getline(in, row);
  const std::vector<std::string> names = cells_of(row);
  std::ifstream lines(folder_ / "run/metrics.jsonl");
  std::size_t rows = 0, numbers = 0;
  for (std::string line; std::getline(in, row) && std::getline(lines, line); ++rows) {
    const std::vector<std::string> cells = cells_of(row);
    ASSERT_EQ(cells.size(), names.size());
    const Json flat = Json::parse(line).flatten();
    for (const auto& [path, value] : flat.items()) {
      std::string name = path.substr(1);
      std::ranges::replace(name, '/', '.');
      const auto at = std::ranges::find(names, name) - names.begin();
      ASSERT_LT(at, std::ssize(names)) << name;
      if (value.is_null()) continue;
      const std::string last = name.substr(name.rfind('.') + 1);
      EXPECT_THAT(line, HasSubstr("\"" + last + "\":" + cells[static_cast<std::size_t>(at)])) << name;
      EXPECT_EQ(Json::parse(cells[static_cast<std::size_t>(at)]), value) << name;
      ++numbers;
    }
  }
  EXPECT_EQ(rows, 8u) << "six steps, two evaluations";
  EXPECT_GT(numbers, 150u);
}

TEST_F(Exports, AReportHasTheRunsNumbers) {
  train({"--layout", "dp=2"});
  train({}, "one");
  const Outcome o = run_program({"report", folder_ / "run", "--baseline", folder_ / "one", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json report = Json::parse(o.out);
  const std::vector<Json> lines = metrics();
  EXPECT_EQ(report["step"], 6);
  EXPECT_EQ(report["quality"]["first_loss"], lines.front()["loss"]);
  EXPECT_EQ(report["quality"]["eval_loss"], lines.back()["eval_loss"]);
  EXPECT_EQ(report["quality"]["accuracy"], lines.back()["eval_accuracy"]);
  EXPECT_GE(lines.back()["eval_accuracy"], 0);
  EXPECT_EQ(report["running"], false);
  double shares = 0;
  for (const auto& [use, share] : report["time"]["shares"].items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-6);
  EXPECT_NEAR(report["efficiency"]["against_baseline"].get<double>(),
              report["efficiency"]["tokens_per_s_rank"].get<double>() /
                  report["efficiency"]["baseline_tokens_per_s_rank"].get<double>(),
              1e-12);
  const std::string text = run_program({"report", folder_ / "run"}).out;
  for (const char* part : {"Time\n", "compute ", "unknown: no baseline", "perplexity ", "Stability\n", "skipped steps"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, ContainsRegex("next-token accuracy +[0-9.]+ ?%"));
}

TEST_F(Exports, AReportOnAPageNeedsNothingElseAndEscapesText) {
  const std::string name = "<script>alert('1')&";
  train({"--ranks", "2"}, name);
  const Outcome o = run_program({"report", folder_ / name, "--html", folder_ / "report.html"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::string page = text_of(folder_ / "report.html");
  EXPECT_THAT(page, HasSubstr("<h1>&lt;script&gt;alert('1')&amp;</h1>"));
  for (const char* part : {">Loss</text>", ">Tokens/s</text>", ">Where a step's time goes, by rank</text>", "<polyline",
                           "Content-Security-Policy"})
    EXPECT_THAT(page, HasSubstr(part));
  const std::string names_space = "xmlns=\"http://www.w3.org/2000/svg\"";
  for (std::size_t at; (at = page.find(names_space)) != std::string::npos;) page.erase(at, names_space.size());
  for (const char* part : {"<script", "src=", "href", "url(", "@import", "http:", "https:", "<link", "<iframe"})
    EXPECT_THAT(page, Not(HasSubstr(part)));
}

}  // namespace
}  // namespace lockstep::tests
