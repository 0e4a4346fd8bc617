// What the dashboard answers about run folders, and what it keeps to itself.
#include "dashboard/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "dashboard/found_runs.h"
#include "dashboard/page_files.h"
#include "dashboard/written_run.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
namespace fs = std::filesystem;

class DashboardTest : public ::testing::Test {
 protected:
  fs::path folder() const { return temporary_.path() / "runs"; }
  HttpAnswer get(Dashboard& dashboard, const std::string& path, std::map<std::string, std::string> query = {}) const {
    return dashboard.answer({.method = "GET", .path = path, .query = std::move(query), .host = "127.0.0.1:1"});
  }
  Json api(const std::string& what, const std::string& run, std::map<std::string, std::string> query = {}) {
    Dashboard dashboard({.folder = folder()});
    query["run"] = run;
    const HttpAnswer answer = get(dashboard, "/api/" + what, query);
    EXPECT_EQ(answer.status, 200) << what;
    return answer.status == 200 ? Json::parse(answer.body) : Json();
  }
  Json runs() { return api("runs", "")["runs"]; }

  TemporaryFolder temporary_;
};

TEST_F(DashboardTest, SummariesAreTheNumbersOfTheLastLine) {
  write_run(folder() / "a", 40);
  write_run(folder() / "deep" / "b", 7);
  const Json all = runs();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["name"], "a");
  EXPECT_EQ(all[1]["name"], "deep/b");
  EXPECT_EQ(all[0]["step"], 40);
  EXPECT_EQ(all[0]["loss"].get<double>(), written_loss(40));
  EXPECT_EQ(all[0]["eval_loss"].get<double>(), 1.0625);
  EXPECT_EQ(all[0]["eval_accuracy"].get<double>(), 0.3125);
  EXPECT_EQ(all[0]["tokens_per_s"].get<double>(), 4096.25);
  EXPECT_EQ(all[0]["mfu"].get<double>(), 0.375);
  EXPECT_EQ(all[0]["band"], "good");
  EXPECT_EQ(all[0]["state"], "ended");
  EXPECT_EQ(all[0]["layout"], "dp=2");
}

TEST_F(DashboardTest, AFolderInThePlaceOfAFileHidesNoRun) {
  for (const char* name : {"plan.json", "events.jsonl", "trace.json", "log.txt"}) {
    write_run(folder() / "a", 40);
    fs::remove(folder() / "a" / name);
    fs::create_directory(folder() / "a" / name);
    const Json all = runs();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0]["step"], 40) << name;
    EXPECT_EQ(all[0]["problem"], "") << name;
    for (const char* part : {"curves", "times", "memory", "events", "findings", "timeline"}) api(part, "a");
    fs::remove_all(folder() / "a");
  }
}

TEST_F(DashboardTest, TheBandIsOfTheWholeRun) {
  write_run(folder() / "a", 3);
  std::ofstream(folder() / "a" / "metrics.jsonl", std::ios::app)
      << R"({"step": 4, "loss": 1, "step_ms": 1e6, "mfu": 0.1, "time": 2e9})"
      << "\n";
  const Json run = runs().at(0);
  EXPECT_EQ(run["mfu"], 0.1) << "the last step's";
  EXPECT_NEAR(run["run_mfu"].get<double>(), 0.1, 1e-3) << "of nearly all the time";
  EXPECT_EQ(run["band"], "poor");
  std::ofstream(folder() / "a" / "metrics.jsonl", std::ios::app)
      << R"({"step": 5, "loss": 1, "step_ms": 9, "mfu": 0.9, "time": 2e9})"
      << "\n";
  EXPECT_EQ(runs().at(0)["mfu"], 0.9);
  EXPECT_EQ(runs().at(0)["band"], "poor") << "one good step does not make a good run";
}

TEST_F(DashboardTest, HiddenAndDeepFoldersAreNotSearched) {
  write_run(folder() / "1/2/3/4", 3);
  write_run(folder() / "1/2/3/five/5", 3);
  write_run(folder() / ".hidden" / "c", 3);
  const Json all = runs();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["name"], "1/2/3/4");
}

TEST_F(DashboardTest, CurvesAreTheFilesNumbersAndRangesCutThem) {
  write_run(folder() / "a", 500);
  const Json curves = api("curves", "a");
  ASSERT_EQ(curves["loss"]["x"].size(), 500u);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(curves["loss"]["x"][i], i + 1);
    ASSERT_EQ(curves["loss"]["y"][i].get<double>(), written_loss(i + 1));
    ASSERT_EQ(curves["loss"]["t"][i].get<double>(), 0.25 * i);
  }
  EXPECT_EQ(curves["eval_loss"]["y"], Json({1.0625}));
  EXPECT_FALSE(curves.contains("nothing"));
  const Json part = api("curves", "a", {{"from", "10"}, {"to", "12"}});
  EXPECT_EQ(part["loss"]["x"], Json({10, 11, 12}));
}

TEST_F(DashboardTest, ALossThatIsNotANumberIsAGap) {
  fs::create_directories(folder() / "a");
  std::ofstream(folder() / "a" / "metrics.jsonl") << R"({"step": 1, "loss": 2.5, "time": 1})"
                                                     "\n"
                                                  << R"({"step": 2, "loss": null, "time": 2})"
                                                     "\n";
  EXPECT_EQ(api("curves", "a")["loss"]["y"], Json({2.5, nullptr}));
}

TEST_F(DashboardTest, TimesAndMemoryAreEachRanks) {
  write_run(folder() / "a", 60, 3);
  const Json times = api("times", "a");
  ASSERT_EQ(times["ranks"].size(), 3u);
  EXPECT_EQ(times["uses"][0], "compute");
  EXPECT_NEAR(times["ranks"][2]["uses"][0].get<double>(), 202, 1e-3);
  EXPECT_NEAR(times["ranks"][2]["uses"][1].get<double>(), 48, 1e-3);
  EXPECT_EQ(times["ranks"][2]["steps"], Json({11, 60}));
  EXPECT_NEAR(times["history"]["ms"][0][0].get<double>(), 200, 1e-3);
  const Json memory = api("memory", "a");
  EXPECT_EQ(memory["tags"], Json({"activations", "weights"}));
  EXPECT_EQ(memory["ranks"][2]["peak"], Json({500, 1002}));
  EXPECT_EQ(memory["ranks"][0]["planned"], Json({400, 1000}));
  EXPECT_EQ(memory["ranks"][0]["planned_peak"], 1400);
  EXPECT_TRUE(memory["ranks"][1]["planned"].is_null());
}

TEST_F(DashboardTest, EventsComeNewestFirst) {
  write_run(folder() / "a", 3);
  std::ofstream(folder() / "a" / "events.jsonl")
      << R"({"time": 1, "error": null, "rank": 0, "kind": "save", "step": 1, "seconds": 0.5, "text": ""})"
         "\n"
      << R"({"time": 2, "error": 1e-5, "rank": 1, "kind": "fault", "step": 2, "seconds": null, "text": "<b>bad</b>"})"
         "\n";
  const Json events = api("events", "a");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["kind"], "fault");
  EXPECT_EQ(events[0]["text"], "<b>bad</b>");
  EXPECT_EQ(events[1]["seconds"], 0.5);
}

TEST_F(DashboardTest, ARunThatIsWrittenMeanwhileIsFollowed) {
  write_run(folder() / "a", 3);
  Dashboard dashboard({.folder = folder()});
  const auto step = [&] { return Json::parse(get(dashboard, "/api/runs").body)["runs"][0]["step"]; };
  EXPECT_EQ(step(), 3);
  std::ofstream(folder() / "a" / "metrics.jsonl", std::ios::app) << written_step(4, 1.5) << "\n{\"step\": 5, \"lo";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(step(), 4);
}

TEST_F(DashboardTest, NothingOutsideTheFolderIsRead) {
  write_run(folder() / "a", 3);
  write_run(temporary_.path() / "secret", 3);
  fs::create_directory_symlink(temporary_.path() / "secret", folder() / "link");
  fs::create_directories(folder() / "b");
  fs::create_symlink(temporary_.path() / "secret" / "metrics.jsonl", folder() / "b" / "metrics.jsonl");
  fs::create_directories(folder() / "c");
  std::ofstream(folder() / "c" / "metrics.jsonl") << written_step(1, 1) << "\n";
  fs::create_directory_symlink(temporary_.path() / "secret" / "ranks", folder() / "c" / "ranks");
  fs::create_directories(folder() / "d" / "ranks");
  std::ofstream(folder() / "d" / "metrics.jsonl") << written_step(1, 1) << "\n";
  fs::create_symlink("/etc/passwd", folder() / "d" / "ranks" / "rank-00000.now");

  Dashboard dashboard({.folder = folder()});
  const Json all = Json::parse(get(dashboard, "/api/runs").body)["runs"];
  std::map<std::string, std::string> problems;
  for (const Json& run : all) problems[run["name"]] = run["problem"];
  EXPECT_FALSE(problems.contains("link"));
  EXPECT_EQ(problems.at("a"), "");
  EXPECT_THAT(problems.at("b"), HasSubstr("metrics.jsonl is a link"));
  EXPECT_THAT(problems.at("c"), HasSubstr("ranks is a link"));
  EXPECT_THAT(problems.at("d"), HasSubstr("ranks/rank-00000.now is a link"));
  for (const char* run : {"../secret", "a/../../secret", "link", "b", "c", "d", "/etc", "a/", "./a", "a/ranks", "",
                          "%2e%2e/secret", "..", "a\n"})
    for (const char* what : {"curves", "times", "memory", "events", "timeline"})
      EXPECT_EQ(get(dashboard, std::string("/api/") + what, {{"run", run}}).status, 404) << what << " " << run;
  for (const char* path :
       {"/../secret/metrics.jsonl", "/a/metrics.jsonl", "//etc/passwd", "/etc/passwd", "/page.js/../../x",
        "/api/../metrics", "/api/", "/runs/a/metrics.jsonl", "/..", "/%2e%2e/secret"})
    EXPECT_EQ(get(dashboard, path).status, 404) << path;
}

TEST_F(DashboardTest, APipeOrAFolderInPlaceOfAFileHoldsNothingUp) {
  fs::create_directories(folder() / "a" / "plan.json");
  std::ofstream(folder() / "a" / "metrics.jsonl") << written_step(1, 1) << "\n";
  fs::create_directories(folder() / "b" / "ranks");
  ASSERT_EQ(mkfifo((folder() / "b" / "metrics.jsonl").c_str(), 0600), 0);
  const Json all = runs();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["problem"], "") << "a folder has no lines";
  EXPECT_EQ(all[0]["step"], 1);
  EXPECT_THAT(all[1]["problem"].get<std::string>(), HasSubstr("metrics.jsonl"));
}

TEST_F(DashboardTest, AForeignHostIsRefusedWhateverItAsksFor) {
  write_run(folder() / "a", 3);
  Dashboard dashboard({.folder = folder(), .hosts = {"trainer"}});
  for (const char* path : {"/", "/api/runs", "/metrics", "/page.js", "/login"}) {
    EXPECT_EQ(dashboard.answer({.method = "GET", .path = path, .host = "evil.example"}).status, 403) << path;
    EXPECT_EQ(dashboard.answer({.method = "GET", .path = path, .host = ""}).status, 403) << path;
  }
  EXPECT_EQ(dashboard.answer({.method = "GET", .path = "/api/runs", .host = "trainer:80"}).status, 200);
}

TEST_F(DashboardTest, WithATokenNothingIsShownWithoutIt) {
  write_run(folder() / "a", 3);
  const std::string token = "0123456789abcdef0123";
  Dashboard dashboard({.folder = folder(), .token = token});
  for (const char* path : {"/api/runs", "/metrics", "/page.js", "/api/curves", "/nothing"}) {
    EXPECT_EQ(get(dashboard, path).status, 401) << path;
    EXPECT_EQ(get(dashboard, path, {{"token", token}}).status, 401) << path;
    EXPECT_EQ(
        dashboard.answer({.method = "GET", .path = path, .host = "localhost", .authorization = "Bearer " + token + "0"})
            .status,
        401);
  }
  EXPECT_EQ(
      dashboard.answer({.method = "GET", .path = "/metrics", .host = "localhost", .authorization = "Bearer " + token})
          .status,
      200);
  EXPECT_EQ(get(dashboard, "/").status, 303);
  const auto login = [&](const std::string& with) {
    return dashboard.answer({.method = "POST", .path = "/login", .form = {{"token", with}}, .host = "localhost"});
  };
  EXPECT_EQ(login("wrong").status, 403);
  const HttpAnswer in = login(token);
  EXPECT_EQ(in.status, 303);
  std::string cookie;
  for (const auto& [name, value] : in.headers)
    if (name == "Set-Cookie") cookie = value.substr(0, value.find(';'));
  EXPECT_EQ(dashboard.answer({.method = "GET", .path = "/api/runs", .host = "localhost", .cookie = cookie}).status,
            200);
  EXPECT_THAT(in.body, Not(HasSubstr(token)));
}

TEST_F(DashboardTest, EveryAnswerForbidsWhatIsNotItsOwn) {
  Dashboard dashboard({.folder = folder()});
  for (const char* path : {"/", "/api/runs", "/metrics", "/nothing"}) {
    std::map<std::string, std::string> headers;
    for (const auto& [name, value] : get(dashboard, path).headers) headers[name] = value;
    EXPECT_THAT(headers["Content-Security-Policy"],
                HasSubstr("default-src 'none'; script-src 'self'; style-src 'self'"))
        << path;
    EXPECT_EQ(headers["X-Content-Type-Options"], "nosniff") << path;
    EXPECT_EQ(headers["Cross-Origin-Resource-Policy"], "same-origin") << path;
    EXPECT_FALSE(headers.contains("Access-Control-Allow-Origin")) << path;
  }
}

// The page puts no text of files where it would be read as HTML: it has none of the ways to.
TEST_F(DashboardTest, ThePageSetsNoHtmlAndLoadsNothingFromElsewhere) {
  if (page_files().empty()) GTEST_SKIP() << "this build has no dashboard";
  int own = 0;
  for (const PageFile& file : page_files()) {
    if (file.path.find("dygraph") != std::string_view::npos) continue;
    ++own;
    const std::string text(file.content);
    for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(",
                            "setTimeout('", "http://", "https://", "//cdn", " onclick=", "javascript:", "style=\""})
      EXPECT_THAT(text, Not(HasSubstr(way))) << file.path;
  }
  EXPECT_EQ(own, 8);
}

TEST_F(DashboardTest, TextOfFilesTravelsAsJson) {
  const std::string name = "<img src=x onerror=alert(1)>\"\\\xff";
  write_run(folder() / name, 3);
  Dashboard dashboard({.folder = folder()});
  const HttpAnswer answer = get(dashboard, "/api/runs");
  EXPECT_THAT(answer.type, HasSubstr("application/json"));
  const std::string shown = Json::parse(answer.body)["runs"][0]["name"];
  EXPECT_EQ(shown, "<img src=x onerror=alert(1)>\"\\\xEF\xBF\xBD");
}

TEST_F(DashboardTest, AFolderThatIsARunIsOneRun) {
  write_run(folder(), 3);
  write_run(folder() / "checkpoints" / "inner", 3);
  const auto found = find_runs(folder());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "runs");
}

}  // namespace
}  // namespace lockstep::tests
