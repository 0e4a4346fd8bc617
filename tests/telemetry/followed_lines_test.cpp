// A file that is cut and written on is followed from where both were alike, and read as if from its beginning.
#include "telemetry/followed_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "telemetry/goodput.h"
#include "telemetry/metrics_file.h"

namespace lockstep::tests {
namespace {

std::string step_line(std::int64_t step, int tried) {
  return fmt::format(R"({{"step":{},"loss":1.5,"step_ms":{},"time":{}}})", step, 100 + tried,
                     1e9 + step + 1e6 * tried) +
         "\n";
}

class LongRun : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 30'000;  // of which the lines are 2 MiB
  std::filesystem::path file() const { return folder_ / "metrics.jsonl"; }
  void write(std::int64_t first, std::int64_t last, int tried) const {
    std::ofstream out(file(), std::ios::app);
    for (std::int64_t step = first; step <= last; ++step) out << step_line(step, tried);
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file()).rdbuf();
    return all.str();
  }
  TemporaryFolder folder_;
};

TEST_F(LongRun, IsCutAfterTheStepItResumesFrom) {
  for (const std::int64_t last : {kSteps - 40, kSteps / 3, std::int64_t{1}, kSteps}) {
    std::filesystem::remove(file());
    write(1, kSteps, 0);
    std::ofstream(file(), std::ios::app) << "{\"step\":30001,\"lo";  // of a process that was killed
    const MetricsFile opened(file(), last);
    ASSERT_TRUE(opened.lost());
    EXPECT_EQ(opened.lost()->steps, kSteps - last);
    std::string expected;
    for (std::int64_t step = 1; step <= last; ++step) expected += step_line(step, 0);
    EXPECT_EQ(text(), expected) << last;
  }
}

TEST_F(LongRun, IsFollowedFromWhereItWasCut) {
  FollowedLines lines(file());
  std::vector<std::string> all;
  std::vector<std::size_t> at_marks;
  std::int64_t handed = 0;
  const FollowedLines::Marks marks{.made = [&] { at_marks.push_back(all.size()); },
                                   .back =
                                       [&](std::size_t kept) {
                                         at_marks.resize(kept);
                                         all.resize(at_marks.back());
                                       }};
  const auto read = [&] {
    handed = 0;
    lines.read(
        [&] {
          all.clear();
          at_marks.clear();
        },
        [&](std::string_view line) {
          all.emplace_back(line);
          ++handed;
        },
        &marks);
  };
  write(1, kSteps, 0);
  read();
  EXPECT_EQ(handed, kSteps);
  for (const auto& [last, tried, most] :
       {std::tuple(kSteps - 40, 1, kSteps / 5), std::tuple(kSteps / 2, 2, 3 * kSteps / 4)}) {
    { const MetricsFile cut(file(), last); }
    write(last + 1, kSteps + tried, tried);
    read();
    EXPECT_LT(handed, most) << "read from its beginning";
    std::string joined;
    for (const std::string& line : all) joined += line + "\n";
    EXPECT_EQ(joined, text());
  }
  std::filesystem::remove(file());
  write(1, 10, 3);
  read();
  EXPECT_EQ(all.size(), 10U) << "another run's";
}

TEST_F(LongRun, HasTheGoodputOfAllItsSteps) {
  GoodputReader followed(folder_.path());
  write(1, kSteps, 0);
  ASSERT_TRUE(followed.update(2e9, true));
  { const MetricsFile cut(file(), kSteps - 40); }
  write(kSteps - 39, kSteps + 5, 1);
  const auto now = followed.update(2e9, true), anew = GoodputReader(folder_.path()).update(2e9, true);
  ASSERT_TRUE(now && anew);
  EXPECT_NEAR(now->steps, anew->steps, 1e-6);
  EXPECT_NEAR(now->whole, anew->whole, 1e-6);
}

}  // namespace
}  // namespace lockstep::tests
