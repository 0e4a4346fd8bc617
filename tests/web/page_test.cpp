// The page in a real browser, during a run and after it: its numbers are those of metrics.jsonl.
//
// Pictures of it are written to the folder $LOCKSTEP_PICTURES, where that is set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "web/browser.h"
#include "web/served_runs.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The values of a run's row, as the page keeps them beside their texts, and the texts.
constexpr const char* kRow =
    "const row = [...document.querySelectorAll('#runs tbody tr')].find((r) => r.dataset.run === arguments[0]);"
    "if (!row) return null;"
    "const all = {state: row.querySelector('[data-key=state]').textContent};"
    "for (const cell of row.querySelectorAll('[data-value]')) all[cell.dataset.key] = [Number(cell.dataset.value), "
    "cell.textContent];"
    "return all;";

constexpr int kSteps = 800;

void keep_picture(Browser& browser, const std::string& name, int height) {
  if (const char* folder = std::getenv("LOCKSTEP_PICTURES")) browser.screenshot(fs::path(folder) / name, height);
}

Json line_of_step(const std::vector<Json>& lines, std::int64_t step, const char* with) {
  for (const Json& line : lines)
    if (line["step"] == step && line.contains(with)) return line;
  return nullptr;
}

// Of all steps but the first, weighted with their time.
double mfu_of(const std::vector<Json>& lines) {
  double reached = 0, all = 0;
  for (const Json& line : lines) {
    if (!line.contains("mfu") || line["step"] == 1) continue;
    reached += line["mfu"].get<double>() * line["step_ms"].get<double>();
    all += line["step_ms"].get<double>();
  }
  return reached / all;
}

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_programs({"chromium", "chromedriver"})) GTEST_SKIP() << "install chromium and chromium-driver";
  }
};

TEST_F(PageTest, ShowsTheNumbersOfMetricsJsonlDuringARunAndAfterIt) {
  ServedRuns served;
  served.write_run_file(kSteps);
  ASSERT_EQ(served.train("one rank", {"--set", "train.steps=200"})->wait().code, 0);
  Browser browser;
  browser.open(served.url());
  const auto training = served.train("pipeline", {"--layout", "dp=2,pp=2,micro=4", "--set", "run.trace=3"});
  const auto row = [&](const std::string& name) { return browser.run(kRow, Json::array({name})); };
  const std::string running =
      "const row = [...document.querySelectorAll('#runs tbody tr')].find((r) => r.dataset.run === 'pipeline');"
      "return row && row.textContent.includes('running') && Number(row.querySelector('[data-key=step]').dataset.value) "
      "> ";
  ASSERT_TRUE(browser.wait_for(running + "5", 120));
  const Json first = row("pipeline");
  const std::int64_t step = first["step"][0];
  const Json line = line_of_step(served.metrics("pipeline"), step, "loss");
  ASSERT_FALSE(line.is_null()) << step;
  for (const char* key : {"loss", "tokens_per_s"}) EXPECT_EQ(first[key][0], line[key]) << key;
  EXPECT_TRUE(browser.wait_for(running + std::to_string(step), 60)) << "the page does not follow the run";
  keep_picture(browser, "dashboard-live.png", 900);

  ASSERT_EQ(training->wait().code, 0);
  ASSERT_TRUE(
      browser.wait_for("const pills = document.querySelectorAll('#runs .pill'); return [...pills].filter((p) => "
                       "p.textContent === 'ended').length === 2",
                       30));
  for (const std::string name : {"one rank", "pipeline"}) {
    const Json shown = row(name);
    const std::vector<Json> lines = served.metrics(name);
    const std::int64_t last = name == "pipeline" ? kSteps : 200;
    const Json end = line_of_step(lines, last, "loss"), evaluation = line_of_step(lines, last, "eval_loss");
    EXPECT_EQ(shown["step"][0], last);
    for (const char* key : {"loss", "tokens_per_s"}) EXPECT_EQ(shown[key][0], end[key]) << name << " " << key;
    EXPECT_NEAR(shown["mfu"][0].get<double>(), mfu_of(lines), 1e-9) << name;
    EXPECT_NEAR(shown["step_ms"][0].get<double>(), end["step_ms"].get<double>(), 1e-9);
    EXPECT_EQ(shown["eval_loss"][0], evaluation["eval_loss"]) << name;
    EXPECT_NEAR(std::stod(shown["loss"][1].get<std::string>()), end["loss"].get<double>(), 1e-3) << "as it is written";
  }
  // Every part of the page has something of the run in focus.
  browser.run("document.querySelectorAll('#runs tbody tr')[1].click()");
  EXPECT_TRUE(
      browser.wait_for("return Number(document.querySelector('[data-chart=loss]').dataset.points) === 800", 20));
  EXPECT_TRUE(browser.wait_for("return Number(document.querySelector('#timeline canvas').dataset.spans) > 50", 20));
  EXPECT_TRUE(browser.wait_for("return !document.querySelector('#schedule').hidden", 20));
  EXPECT_TRUE(browser.wait_for("return document.querySelector('#times .legend').textContent.includes('wait pp')", 20));
  EXPECT_TRUE(
      browser.wait_for("return document.querySelector('#memory .legend').textContent.includes('parameter')", 20));
  EXPECT_TRUE(browser.wait_for("return !document.querySelector('#findings').hidden", 20));
  EXPECT_EQ(browser.complaints(), "");
  EXPECT_EQ(browser.run("return performance.getEntriesByType('resource').filter((r) => "
                        "!r.name.startsWith(location.origin) && !r.name.startsWith('data:')).length"),
            0);
  keep_picture(browser, "dashboard-page.png", 2050);
  browser.run("document.getElementById('theme').click()");
  keep_picture(browser, "dashboard-dark.png", 900);
  browser.run(
      "const log = document.getElementById('log'); log.click(); const s = document.getElementById('smoothing'); "
      "s.value = 0; s.dispatchEvent(new Event('input'))");
  EXPECT_EQ(browser.complaints(), "");
}

TEST_F(PageTest, TextOfFilesIsShownAsText) {
  ServedRuns served;
  const std::string name = "<img src=x onerror=window.hit=1>";
  fs::create_directories(served.runs() / name);
  std::ofstream(served.runs() / name / "metrics.jsonl") << R"({"step": 1, "loss": 2.5, "time": 1})"
                                                        << "\n";
  std::ofstream(served.runs() / name / "events.jsonl")
      << R"({"time": 1, "error": null, "rank": 0, "kind": "<i>fault</i>", "step": 1, "seconds": null, "text": "<script>window.hit=2</script><b>x</b>"})"
      << "\n";
  std::ofstream(served.runs() / name / "plan.json") << R"({"layout": "<u>dp</u>", "ranks": 1})";
  Browser browser;
  browser.open(served.url());
  ASSERT_TRUE(browser.wait_for("return document.querySelectorAll('#events tbody tr').length === 1", 30));
  EXPECT_EQ(browser.run("return document.querySelector('#runs .name').textContent"), name);
  EXPECT_TRUE(browser.run(
      "return document.querySelector('#events tbody').textContent.includes('<script>window.hit=2</script><b>x</b>')"));
  EXPECT_EQ(browser.run("return document.querySelectorAll('main img, main script, main i, main b, main u').length"), 0);
  EXPECT_TRUE(browser.run("return window.hit === undefined"));
}

TEST_F(PageTest, ATokenIsAskedForOnceAndHiddenFromScripts) {
  ServedRuns served("--address 0.0.0.0");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(served.said(), match, std::regex("token +([0-9a-f]+)\n"))) << served.said();
  EXPECT_THAT(served.said(), ::testing::HasSubstr("not encrypted"));
  fs::create_directories(served.runs() / "a");
  std::ofstream(served.runs() / "a" / "metrics.jsonl") << R"({"step": 1, "loss": 2.5, "time": 1})"
                                                       << "\n";
  Browser browser;
  browser.open(served.url());
  EXPECT_EQ(browser.run("return location.pathname"), "/login");
  browser.run("document.querySelector('input').value = 'wrong'; document.forms[0].submit()");
  EXPECT_TRUE(browser.wait_for("return location.pathname === '/login' && document.readyState === 'complete'", 10));
  EXPECT_TRUE(browser.run("return document.querySelector('#runs') === null"));
  browser.run("document.querySelector('input').value = arguments[0]; document.forms[0].submit()",
              Json::array({match[1].str()}));
  EXPECT_TRUE(browser.wait_for("return document.querySelector('#runs .name')?.textContent === 'a'", 30));
  EXPECT_EQ(browser.run("return document.cookie"), "");
  EXPECT_EQ(browser.run("return location.href").get<std::string>().find(match[1].str()), std::string::npos);
}

}  // namespace
}  // namespace lockstep::tests
