// A real Prometheus server scrapes a run that is training, and answers a query with its numbers.
#include <gtest/gtest.h>
#include <httplib.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "web/browser.h"
#include "web/served_runs.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;

// The value of a series at that time; NaN: there is none.
double value_at(int port, const std::string& series, double time) {
  httplib::Client client("127.0.0.1", port);
  const auto answer =
      client.Get("/api/v1/query?query=" + series + "%7Brun%3D%22live%22%7D&time=" + std::to_string(time));
  if (!answer || answer->status != 200) return std::nan("");
  const Json found = Json::parse(answer->body)["data"]["result"];
  return found.empty() ? std::nan("") : std::stod(found[0]["value"][1].get<std::string>());
}

TEST(PrometheusServer, ScrapesALiveRunAndAnswersAQuery) {
  if (!have_programs({"prometheus"})) GTEST_SKIP() << "install prometheus";
  const std::string token = "scraped-with-this-token";
  ServedRuns served("", "LOCKSTEP_DASHBOARD_TOKEN=" + token);
  served.write_run_file(5000);  // outlasts what follows, and is ended by it
  const auto training = served.train("live");
  const TemporaryFolder folder;
  std::ofstream(folder / "prometheus.yml")
      << "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: lockstep\n  authorization: {credentials: "
      << token << "}\n  static_configs: [{targets: ['127.0.0.1:" << served.port() << "']}]\n";
  const int port = free_port();
  Program prometheus(
      {}, folder.path(),
      {"/bin/sh", "-c",
       "exec prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:" +
           std::to_string(port)});
  double step = 0, before = 0, time = 0;
  int grew = 0;
  for (int i = 0; i < 200 && grew < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    step = value_at(port, "lockstep_step", time);
    if (step > before) ++grew, before = step;
  }
  ASSERT_EQ(grew, 3) << "the series does not follow the run";
  const double loss = value_at(port, "lockstep_loss", time);
  step = value_at(port, "lockstep_step", time);
  bool found = false;
  for (const Json& line : served.metrics("live"))
    found = found || (line["step"] == static_cast<std::int64_t>(step) && line.contains("loss") && line["loss"] == loss);
  EXPECT_TRUE(found) << "step " << step << " loss " << loss;
  training->signal(SIGTERM);
  training->wait();
  prometheus.signal(SIGTERM);
  prometheus.wait();
}

}  // namespace
}  // namespace lockstep::tests
