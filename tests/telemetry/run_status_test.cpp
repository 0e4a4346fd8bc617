// A run's status, of folders written by hand: with launch and without, under way, over, and damaged.
#include "telemetry/run_status.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "telemetry/event_log.h"
#include "telemetry/rank_folder.h"
#include "telemetry/step_record.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WrittenStatus : public ::testing::Test {
 protected:
  WrittenStatus() {
    make_rank_folder(folder_.path());
    std::ofstream(folder_ / "plan.json") << R"({"layout": "dp=2", "ranks": 2, "steps": 10})";
    std::ofstream metrics(folder_ / "metrics.jsonl");
    for (int step = 1; step <= 4; ++step)
      metrics << fmt::format("{{\"step\": {}, \"loss\": {}, \"step_ms\": 1000, \"time\": {:.3f}}}\n", step, 5.0 - step,
                             now_ - 20 + step);
  }
  void rank_says(int rank, double ago, DoingKind doing = DoingKind::action, std::int64_t step = 5) const {
    std::ofstream(rank_file(folder_.path(), rank, "now"))
        << to_json_line(RankNow{.rank = rank,
                                .pid = ::getpid(),
                                .host = "nowhere",
                                .step = step,
                                .doing = doing,
                                .action = doing == DoingKind::action ? "forward block.1" : "",
                                .seconds = 0.5,
                                .time = now_ - ago});
  }
  void happens(LoggedEvent event, double ago) const {
    event.time = now_ - ago;
    std::ofstream(folder_ / "events.jsonl", std::ios::app) << to_json_line(event);
  }
  LaunchState launch(LaunchPhase phase) const {
    return {.epoch = 2,
            .state = phase,
            .leader = "nowhere",
            .restarts = 1,
            .layout = "dp=2",
            .since = now_ - 5,
            .hosts = {{.name = "nowhere", .pid = 1, .role = HostRole::leader, .heard = now_, .ranks = {0, 1}}},
            .copy_every = 3};
  }
  void write(const LaunchState& state) const { write_launch_state(launch_file(folder_.path()), state); }
  StatusOfRun status() const { return status_of(read_run(folder_.path())); }

  const double now_ = seconds_since_1970();
  TemporaryFolder folder_;
};

TEST_F(WrittenStatus, OfARunUnderLaunchHasAllOfIt) {
  happens({.kind = EventKind::start, .seconds = 1}, 20);
  happens({.rank = 1, .kind = EventKind::fault, .step = 3, .text = "rank 1 is gone"}, 9);
  happens(
      {.rank = kOfTheAgent, .kind = EventKind::fault, .step = 4, .text = "rank 1 was ended by signal 9", .culprit = 1},
      9);
  happens({.rank = kOfTheAgent, .kind = EventKind::decision, .decision = Decision::same, .epoch = 2}, 8);
  happens({.kind = EventKind::start, .seconds = 1}, 6);
  happens({.rank = kOfTheAgent, .kind = EventKind::restart, .seconds = 2.5}, 5);
  happens({.rank = 1, .kind = EventKind::slow}, 4);
  rank_says(0, 1);
  rank_says(1, 10);  // it has said nothing in the new epoch yet
  write(launch(LaunchPhase::running));
  const StatusOfRun s = status();
  EXPECT_EQ(s.state, RunState::running);
  EXPECT_EQ(s.step, 4);
  EXPECT_EQ(s.steps, 10);
  EXPECT_EQ(s.loss, 1);
  const RunHealth& h = s.health;
  EXPECT_TRUE(h.launched && h.agents);
  EXPECT_EQ(std::tie(h.epoch, h.restarts, h.leader, h.layout), std::tuple(2, 1, "nowhere", "dp=2"));
  EXPECT_EQ(h.copy_every, 3);
  ASSERT_EQ(h.hosts.size(), 1u);
  EXPECT_THAT(h.hosts[0].ranks, ElementsAre(0, 1));
  ASSERT_TRUE(h.fault);
  EXPECT_EQ(h.fault->text, "rank 1 was ended by signal 9") << "the agent's word";
  EXPECT_EQ(h.fault->culprit, 1);
  EXPECT_EQ(h.fault->cost_seconds, 2.5);
  EXPECT_THAT(h.slow, ElementsAre(1));
  ASSERT_TRUE(h.goodput);
  EXPECT_NEAR(h.goodput->steps, 4, 1e-6);
  EXPECT_EQ(h.goodput->restarts, 1);
  ASSERT_EQ(s.ranks.size(), 2u);
  EXPECT_EQ(s.ranks[0].epoch, 2);
  EXPECT_EQ(s.ranks[1].epoch, 1);
  EXPECT_EQ(s.ranks[0].what, "in forward block.1 of step 5");
  EXPECT_NEAR(s.ranks[1].heard, 10, 5);
  EXPECT_TRUE(s.ranks[1].slow);
  EXPECT_FALSE(s.ranks[0].slow);
  EXPECT_THAT(s.damaged, IsEmpty());
}

TEST_F(WrittenStatus, SaysWhatTheLaunchIsDoing) {
  rank_says(0, 1);
  for (const auto& [phase, state] : {std::pair(LaunchPhase::starting, RunState::starting),
                                     {LaunchPhase::running, RunState::running},
                                     {LaunchPhase::recovering, RunState::recovering},
                                     {LaunchPhase::waiting, RunState::waiting}}) {
    write(launch(phase));
    EXPECT_EQ(status().state, state) << name_of(phase);
    EXPECT_TRUE(status().health.agents);
  }
  LaunchState silent = launch(LaunchPhase::recovering);
  silent.hosts[0].heard = silent.since = now_ - 60;
  write(silent);
  EXPECT_FALSE(status().health.agents) << "nobody has written for a minute";
  EXPECT_EQ(status().state, RunState::running) << "by what the ranks say";
  write(launch(LaunchPhase::ended));
  EXPECT_FALSE(status().health.agents);
  EXPECT_TRUE(status().health.launched);
}

TEST_F(WrittenStatus, OfARunWithoutLaunchIsByItsRanks) {
  rank_says(0, 1);
  rank_says(1, 1, DoingKind::saving);
  happens({.rank = 1, .kind = EventKind::fault, .step = 3, .text = "checkpoint not saved: rank 1: full", .culprit = 1},
          9);
  const StatusOfRun s = status();
  EXPECT_EQ(s.state, RunState::running);
  EXPECT_FALSE(s.health.launched);
  EXPECT_EQ(s.ranks[0].epoch, 0);
  EXPECT_EQ(s.ranks[1].what, "saving of step 5");
  ASSERT_TRUE(s.health.fault);
  EXPECT_EQ(s.health.fault->culprit, 1);
  EXPECT_FALSE(s.health.fault->cost_seconds);
  const auto json = to_json(s);
  EXPECT_TRUE(json["launch"]["epoch"].is_null());
  EXPECT_EQ(json["ranks"][1]["doing"], "saving");
  EXPECT_EQ(json["launch"]["goodput"]["parts"].size(), 9u);
}

TEST_F(WrittenStatus, AfterItHasEndedSaysSo) {
  rank_says(0, 100, DoingKind::ended, 10);
  rank_says(1, 100, DoingKind::ended, 10);
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app)
      << fmt::format("{{\"step\": 10, \"loss\": 1, \"step_ms\": 1000, \"time\": {:.3f}}}\n", now_ - 100);
  write(launch(LaunchPhase::ended));
  const StatusOfRun s = status();
  EXPECT_EQ(s.state, RunState::ended);
  EXPECT_EQ(s.ranks[0].what, "ended");
}

TEST_F(WrittenStatus, SlownessIsOfTheTryThatTrains) {
  happens({.kind = EventKind::start}, 20);
  happens({.rank = 0, .kind = EventKind::slow}, 19);
  happens({.rank = 1, .kind = EventKind::slow}, 18);
  happens({.rank = 0, .kind = EventKind::slow_end}, 17);
  EXPECT_THAT(status().health.slow, ElementsAre(1));
  happens({.kind = EventKind::start}, 10);
  EXPECT_THAT(status().health.slow, IsEmpty());
}

TEST_F(WrittenStatus, NamesFilesThatAreDamaged) {
  rank_says(0, 1);
  std::ofstream(folder_ / "launch.json") << "{\"version\": 1";
  std::ofstream(rank_file(folder_.path(), 1, "now")) << "no";
  std::ofstream(folder_ / "events.jsonl") << "no\nno\n";
  const StatusOfRun s = status();
  EXPECT_THAT(s.damaged, ElementsAre("events.jsonl: 2 lines", "launch.json", "ranks/rank-00001.now"));
  EXPECT_FALSE(s.health.launched);
  EXPECT_EQ(s.ranks.size(), 1u);
}

}  // namespace
}  // namespace lockstep::tests
