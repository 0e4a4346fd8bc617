// Records and files of metrics: whole lines at full precision, and numbers people can read.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/program.h"
#include "telemetry/metrics_file.h"
#include "telemetry/number_text.h"
#include "telemetry/step_record.h"
#include "telemetry/z_score.h"

namespace lockstep::tests {
namespace {

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(StepRecord, NumbersComeBackToTheLastBit) {
  StepRecord r;
  r.step = 7;
  r.loss = 1.0 / 3;
  r.grad_norm = std::nan("");
  r.bytes = {{"parameter", 12}};
  const auto json = nlohmann::json::parse(to_json_line(r));
  EXPECT_EQ(json["loss"].get<double>(), 1.0 / 3);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(json["loss_z"].is_null());
  EXPECT_EQ(json["bytes"]["parameter"], 12);
  EXPECT_EQ(to_json_line(r).back(), '\n');
}

TEST(MetricsFile, GoingOnDropsWhatCameAfterTheCheckpointAndHalfALine) {
  const TemporaryFolder folder;
  const std::string file = folder / "metrics.jsonl";
  {
    MetricsFile metrics(file, 0);
    for (int step = 1; step <= 5; ++step) metrics.write("{\"step\":" + std::to_string(step) + "}\n");
    metrics.write("{\"step\":6,\"lo");
  }
  { MetricsFile metrics(file, 3); }
  EXPECT_EQ(text_of(file), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  {
    MetricsFile metrics(file, 3);
    metrics.write("{\"step\":4}\n");
  }
  EXPECT_EQ(text_of(file), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  { MetricsFile metrics(file, 0); }
  EXPECT_EQ(text_of(file), "");
}

TEST(ZScore, CountsStandardDeviationsFromTheLastHundred) {
  ZScore z;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(z.add(i % 2), std::nullopt);
  EXPECT_NEAR(*z.add(0.5), 0, 1e-12);
  EXPECT_EQ(z.add(std::nan("")), std::nullopt);
  ZScore same;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(same.add(2), std::nullopt);
  ZScore window;
  for (int i = 0; i < 100; ++i) window.add(1000 + i);
  for (int i = 0; i < 100; ++i) window.add(i % 2);  // the thousands have left
  EXPECT_NEAR(*window.add(0.5 + std::sqrt(25.0 / 99) * 3), 3, 1e-9);
}

TEST(NumberText, IsShortAndRight) {
  EXPECT_EQ(byte_text(0), "0 B");
  EXPECT_EQ(byte_text(1023), "1023 B");
  EXPECT_EQ(byte_text(1536), "1.50 KiB");
  EXPECT_EQ(byte_text(std::int64_t{405} << 30), "405 GiB");
  EXPECT_EQ(count_text(4'853'504), "4.85M");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(duration_text(42), "0:42");
  EXPECT_EQ(duration_text(3661), "1:01:01");
  EXPECT_EQ(grouped_digits(1234567), "1,234,567");
  EXPECT_EQ(grouped_digits(-123), "-123");
  EXPECT_EQ(grouped_digits(-1234), "-1,234");
}

}  // namespace
}  // namespace lockstep::tests
