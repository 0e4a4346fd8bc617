// arrivals.jsonl: what is written is read, and what is no record is refused.
#include "telemetry/arrivals.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "support/program.h"
#include "telemetry/step_record.h"

namespace lockstep::tests {
namespace {

class ArrivalsFile : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(folder_ / "a.jsonl", std::ios::binary) << text; }
  std::string refusal() const {
    try {
      read_arrivals(folder_ / "a.jsonl");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

const std::vector<Arrival> kThree{{.update = 4, .worker = 1, .ticket = 5, .version = 2},
                                  {.update = 5, .worker = 0, .ticket = 4, .version = 1},
                                  {.update = 6, .worker = 1, .ticket = 6, .version = 5}};

std::string lines_of(const std::vector<Arrival>& arrivals) {
  std::string text;
  for (const Arrival& one : arrivals) text += to_json_line(one.update / 2 + 1, one);
  return text;
}

TEST_F(ArrivalsFile, IsReadAsItWasWritten) {
  EXPECT_EQ(to_json_line(3, kThree[0]), "{\"step\":3,\"update\":4,\"worker\":1,\"ticket\":5,\"version\":2}\n");
  write(lines_of(kThree));
  EXPECT_EQ(read_arrivals(folder_ / "a.jsonl"), kThree);
  write(lines_of(kThree) + "{\"step\":4,\"upd");  // of a process that was killed
  EXPECT_EQ(read_arrivals(folder_ / "a.jsonl"), kThree);
}

// Deaths and joins are between the updates that they came between, and the order is read without them.
TEST_F(ArrivalsFile, SaysWhichWorkersWereLostAndJoined) {
  const std::vector<WorkerChange> changes{
      {.update = 4, .worker = 2, .joins = true, .seconds = 0.5},
      {.update = 5, .worker = 1, .ticket = 6, .seconds = 0.25, .why = "it has \"closed\"\xff"},
      {.update = 7, .worker = 1, .joins = true}};
  const std::string lines = to_json_lines(3, kThree, changes);
  std::vector<std::string> kinds;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);)
    kinds.push_back(line.find("change") == std::string::npos   ? "update"
                    : line.find("joined") == std::string::npos ? "lost"
                                                               : "joined");
  EXPECT_EQ(kinds, (std::vector<std::string>{"joined", "update", "lost", "update", "update", "joined"}));
  EXPECT_NE(lines.find(R"("update":5,"worker":1,"change":"lost","ticket":6,"seconds":0.25)"), std::string::npos)
      << lines;
  write(lines);
  EXPECT_EQ(read_arrivals(folder_ / "a.jsonl"), kThree);
}

TEST_F(ArrivalsFile, ThatIsNoRecordIsRefusedByLine) {
  EXPECT_NE(refusal().find("cannot be read"), std::string::npos);
  write("");
  EXPECT_NE(refusal().find("has no arrivals"), std::string::npos);
  write(lines_of({kThree[0], kThree[2]}));
  EXPECT_NE(refusal().find("line 2 is update 6, after update 4"), std::string::npos) << refusal();
  for (const char* bad : {"nonsense\n", "{\"step\":3,\"update\":5,\"worker\":1,\"ticket\":5}\n",
                          "{\"step\":3,\"update\":5,\"worker\":-1,\"ticket\":5,\"version\":2}\n",
                          "{\"step\":3,\"update\":5,\"worker\":1,\"ticket\":5,\"version\":6}\n"}) {
    write(lines_of({kThree[0]}) + bad);
    EXPECT_NE(refusal().find("line 2 is no arrival"), std::string::npos) << bad << refusal();
  }
}

TEST(ArrivalsOfAStep, GiveItsStaleness) {
  const Staleness staleness = staleness_of(kThree);
  EXPECT_DOUBLE_EQ(staleness.mean, (2 + 4 + 1) / 3.0);
  EXPECT_EQ(staleness.most, 4);
  StepRecord record;
  record.step = 3;
  EXPECT_EQ(to_json_line(record).find("staleness"), std::string::npos);
  record.arrivals = kThree;
  EXPECT_NE(to_json_line(record).find("\"staleness_mean\":2.3333333333333335,\"staleness_max\":4"), std::string::npos)
      << to_json_line(record);
}

}  // namespace
}  // namespace lockstep::tests
