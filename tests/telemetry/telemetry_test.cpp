// Records and files of metrics: whole lines at full precision, and numbers people can read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/appended_file.h"
#include "telemetry/metrics_file.h"
#include "telemetry/number_text.h"
#include "telemetry/step_record.h"
#include "telemetry/z_score.h"

namespace lockstep::tests {
namespace {

TEST(StepRecord, NumbersComeBackToTheLastBit) {
  StepRecord r;
  r.step = 7;
  r.loss = 1.0 / 3;
  r.grad_norm = std::nan("");
  r.bytes = {{"parameter", 12}};
  r.seconds = 0.25;
  r.updated = false;
  const auto json = nlohmann::json::parse(to_json_line(r));
  EXPECT_EQ(json["loss"].get<double>(), 1.0 / 3);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(json["loss_z"].is_null());
  EXPECT_EQ(json["bytes"]["parameter"], 12);
  EXPECT_EQ(json["step_ms"], 250);
  EXPECT_EQ(json["updated"], false);
  EXPECT_EQ(to_json_line(r).back(), '\n');
}

TEST(StepRecord, HasTheLossScaleOfRunsThatHaveOne) {
  StepRecord r;
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(r)).contains("loss_scale"));
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(r)).contains("overflow"));
  r.loss_scale = 32768;
  EXPECT_EQ(nlohmann::json::parse(to_json_line(r))["loss_scale"], 32768);
  EXPECT_EQ(nlohmann::json::parse(to_json_line(r))["overflow"], false);
  r.overflow = true;
  EXPECT_EQ(nlohmann::json::parse(to_json_line(r))["overflow"], true);
}

TEST(StepRecord, HasTheBubbleOfAPipeline) {
  StepRecord r;
  r.times.resize(2);
  for (TimesByUse& rank : r.times) {
    rank[TimeUse::compute] = 3;
    rank[TimeUse::save] = 100;  // of no step
    rank[TimeUse::evaluate] = 100;
  }
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(r)).contains("bubble"));
  r.times[0][TimeUse::wait_pp] = 1;
  r.times[1][TimeUse::wait_pp] = 2;
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(to_json_line(r))["bubble"].get<double>(), 3.0 / 9);
}

TEST(StepRecord, ComparesMessagesWithTheLink) {
  const SentByAxis sent{.axis = "dp", .calls = 2, .bytes = 500, .seconds = 0.5, .link = 4000};
  EXPECT_DOUBLE_EQ(sent.of_link().value(), 0.25);
  for (const SentByAxis& unknown : {SentByAxis{.axis = "dp", .calls = 2, .bytes = 500, .seconds = 0.5},
                                    {.axis = "dp", .calls = 2, .bytes = 500, .link = 4000},
                                    {.axis = "dp", .seconds = 1, .link = 4000},
                                    {.axis = "dp", .bytes = 1, .seconds = 1, .link = 0}})
    EXPECT_FALSE(unknown.of_link());
  const auto line = nlohmann::json::parse(rank_json(3, {}, {sent}));
  EXPECT_EQ(line["sent"]["dp"], (nlohmann::json{{"calls", 2}, {"bytes", 500}, {"ms", 500.0}, {"of_link", 0.25}}));
  EXPECT_FALSE(line.contains("bytes"));
  const HeldMemory memory{{{"parameter", 7}}, {{"parameter", 9}}};
  const auto with = nlohmann::json::parse(rank_json(3, {}, {sent}, &memory));
  EXPECT_EQ(with["bytes"]["parameter"], 7);
  EXPECT_EQ(with["peak_bytes"]["parameter"], 9);
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

TEST(MetricsFile, SaysWhichStepsAreLost) {
  const TemporaryFolder folder;
  const std::string file = folder / "metrics.jsonl";
  {
    MetricsFile metrics(file, 0);
    EXPECT_FALSE(metrics.lost());
    for (int step = 1; step <= 5; ++step)
      metrics.write(fmt::format("{{\"step\":{},\"step_ms\":500.0,\"time\":{}}}\n", step, 100.0 + step));
    metrics.write("{\"step\":5,\"eval_loss\":1,\"time\":300}\n");  // is no step
  }
  {
    const MetricsFile metrics(file, 3);
    ASSERT_TRUE(metrics.lost());
    EXPECT_EQ(metrics.lost()->steps, 2);
    EXPECT_EQ(metrics.lost()->from, 103);
    EXPECT_EQ(metrics.lost()->until, 105);
  }
  {
    const MetricsFile metrics(file, 3);  // a try that has not made a step
    ASSERT_TRUE(metrics.lost());
    EXPECT_EQ(metrics.lost()->steps, 0);
    EXPECT_EQ(metrics.lost()->from, 103);
    EXPECT_EQ(metrics.lost()->until, 103);
  }
  {
    const MetricsFile metrics(file, 0);  // from the beginning
    ASSERT_TRUE(metrics.lost());
    EXPECT_EQ(metrics.lost()->steps, 3);
    EXPECT_EQ(metrics.lost()->from, 100.5);
    EXPECT_EQ(metrics.lost()->until, 103);
  }
}

// A pipe that nobody reads is full soon, and has room again when somebody does: as a disk, without its rights.
TEST(AppendedFile, KeepsWhatCannotBeWrittenAndWritesItInOrder) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  ASSERT_GE(::fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
  std::string wanted, read;
  const auto drain = [&] {
    char bytes[4096];
    for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) read.append(bytes, static_cast<std::size_t>(n));
  };
  {
    AppendedFile file("a log", ends[1], 64 << 10);
    const auto write = [&](int i) {
      const std::string line = std::to_string(i) + std::string(700, 'x') + "\n";
      file.write(line);
      wanted += line;
    };
    for (int i = 0; i < 5; ++i) write(i);
    EXPECT_EQ(file.failure(), "");
    for (int i = 5; i < 20; ++i) write(i);
    EXPECT_EQ(file.failure().find("a log: write failed: "), 0u);
    drain();
    for (int i = 20; i < 22; ++i) write(i), drain();
    for (int i = 0; i < 9; ++i) file.write(""), drain();
    EXPECT_EQ(file.failure(), "");
    EXPECT_EQ(read, wanted);
    // What is kept is bounded, and lines that are dropped are counted.
    for (int i = 0; i < 200; ++i) file.write(std::string(999, 'y') + "\n");
    EXPECT_GT(file.dropped(), 100);
    EXPECT_LT(file.dropped(), 150);
  }
  ::close(ends[0]);
}

TEST(AppendedFile, AFullDiskIsNamedWithARemedy) {
  AppendedFile file("/dev/full");
  file.write("a line\n");
  EXPECT_EQ(file.failure(),
            "/dev/full: write failed: No space left on device; free space there, or name a path on another disk");
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
