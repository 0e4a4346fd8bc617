// Training on two hosts (tools/two_hosts: two network namespaces): the bits of threads, and what is lost is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/drill.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

constexpr double kDeadline = 3;
const char* const kTellHost = R"sh(hostname >"$told/host.$OMPI_COMM_WORLD_RANK")sh";

std::vector<std::string> two_hosts(const std::string& ranks) {
  return {LOCKSTEP_SOURCE_DIR "/tools/two_hosts", "-n", ranks};
}

class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_drill_here(true); !why.empty()) GTEST_SKIP() << why << ": two hosts need root";
    if (std::system("ip netns list >/dev/null 2>&1") != 0) GTEST_SKIP() << "no `ip` here: two hosts need iproute2";
  }
  // Starts training for ever; the processes by rank.
  std::map<int, pid_t> begin(const std::string& ranks) {
    drill_.start(Drill::endless(), two_hosts(ranks), kTellHost);
    auto processes = drill_.trains();
    EXPECT_EQ(processes.size(), 4u);
    drill_.did();
    return processes;
  }
  // Bytes across the cable, both ways, of one step of a run with these arguments: by the difference of two runs.
  double sent_per_step(const std::vector<std::string>& more,
                       const std::vector<std::string>& launcher = two_hosts("2+2"), int other_host = 2, int few = 10,
                       int many = 40) {
    const std::string tell_sent =
        R"sh("$@"; code=$?; cat /sys/class/net/cable/statistics/tx_bytes >"$told/sent.$OMPI_COMM_WORLD_RANK"; exit $code)sh";
    std::vector<double> sent;
    for (const int steps : {few, many}) {
      std::vector<std::string> arguments{"--overwrite",
                                         "--set",
                                         "train.steps=" + std::to_string(steps),
                                         "--set",
                                         "train.eval_every=0",
                                         "--set",
                                         "train.save_last=false"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      drill_.start(arguments, launcher, tell_sent);
      const Drill::Ended ended = drill_.end();
      EXPECT_EQ(ended.launcher.code, 0) << ended.text();
      double bytes = 0;
      for (const int rank : {0, other_host}) {  // each sees its end of the cable
        double of = 0;
        std::ifstream(folder_ / ("told/sent." + std::to_string(rank))) >> of;
        EXPECT_GT(of, 0) << rank;
        bytes += of;
      }
      sent.push_back(bytes);
    }
    return (sent[1] - sent[0]) / (many - few);
  }
  // The lines of log.txt that warn of groups across nodes.
  std::vector<std::string> placement_warnings_in_log() const {
    std::vector<std::string> found;
    std::ifstream log(drill_.out() + "/log.txt");
    for (std::string line; std::getline(log, line);)
      if (line.find(" crosses nodes of ") != std::string::npos) found.push_back(line);
    return found;
  }
  // Each host is named after its namespace; others may have theirs at the same time.
  void expect_nothing_left(const Drill::Ended& ended) const {
    EXPECT_TRUE(ended.left.empty()) << ended.text();
    std::set<std::string> hosts;
    for (int rank = 0; rank < 4; ++rank) {
      std::string name;
      std::ifstream(folder_ / ("told/host." + std::to_string(rank))) >> name;
      EXPECT_FALSE(std::filesystem::exists("/run/netns/" + name)) << name << " is left";
      hosts.insert(name);
    }
    EXPECT_EQ(hosts.size(), 2u);
  }

  TemporaryFolder folder_;
  Drill drill_{folder_, "dp=4,micro=3", kDeadline};
};

TEST_F(TwoHosts, LearnTheBitsThatThreadsLearn) {
  const Outcome threads =
      run_program({"train", folder_ / "tiny.toml", "--out", folder_ / "threads", "--layout", "dp=4,micro=3"});
  ASSERT_EQ(threads.code, 0) << threads.err;
  const RunResults theirs = results_in(folder_ / "threads");
  ASSERT_GE(theirs.losses.size(), 6u);
  ASSERT_FALSE(theirs.files.empty());
  for (const char* ranks : {"4", "3+1", "1+3"}) {
    drill_.start({"--overwrite"}, two_hosts(ranks), kTellHost);
    const Drill::Ended ended = drill_.end();
    ASSERT_EQ(ended.launcher.code, 0) << ended.text();
    const RunResults mine = results_in(drill_.out());
    EXPECT_EQ(mine.losses, theirs.losses) << ranks;
    EXPECT_TRUE(mine.files == theirs.files) << ranks;
    expect_nothing_left(ended);
  }
}

// With `shard` the ranks of a host gather weights among themselves, and gradients alone cross, once per step.
TEST_F(TwoHosts, SendFewerBytesWhereAHostHasAWholeCopy) {
  const double whole = sent_per_step({"--layout", "dp=4,zero=3,micro=3,grad_sync=step"}),
               hybrid = sent_per_step({"--layout", "dp=4,zero=3,shard=2,micro=3,grad_sync=step"});
  std::printf("bytes across the cable per step: %.0f sharded over both hosts, %.0f with shard=2\n", whole, hybrid);
  EXPECT_LT(hybrid, 0.6 * whole);
  // Gradients of 20,736 stored parameters in fp32, once each way, and the headers of packets.
  EXPECT_GE(hybrid, 2 * 20'736 * 4);
  EXPECT_LT(hybrid, 2 * 20'736 * 4 * 1.25);
}

// What `plan` says crosses nodes is what the interfaces count; and training warns where tp or cp crosses, and only
// there.
TEST_F(TwoHosts, SendOverTheCableWhatThePlanSays) {
  struct Case {
    std::string layout;
    bool turns;           // ranks are on the hosts in turns
    std::string warning;  // a part of it; none: training does not warn
  };
  const std::vector<std::string> model{"--set", "model.width=64",   "--set", "model.heads=4",
                                       "--set", "model.kv_heads=4", "--set", "train.global_batch=12",
                                       "--set", "data.seq=64",      "--set", "model.max_positions=64"};
  for (const Case& c :
       {Case{"tp=4", false, "tp=4 crosses nodes of 2 ranks"}, Case{"dp=2,tp=2", false, ""},
        Case{"dp=2,tp=2", true, "mpirun --map-by slot"}, Case{"cp=4", false, "cp=4 crosses nodes of 2 ranks"},
        Case{"pp=2,tp=2,micro=3", false, ""}, Case{"dp=4,zero=3", false, ""}}) {
    SCOPED_TRACE(c.layout);
    std::vector<std::string> arguments = model, launcher = two_hosts("2+2");
    arguments.insert(arguments.end(), {"--layout", c.layout});
    if (c.turns) launcher.insert(launcher.begin(), {"env", "OMPI_MCA_rmaps_base_mapping_policy=node"});
    const double sent = sent_per_step(arguments, launcher, c.turns ? 1 : 2, 4, 12);
    const std::vector<std::string> warnings = placement_warnings_in_log();
    EXPECT_EQ(warnings.size(), c.warning.empty() ? 0u : 1u);
    for (const std::string& line : warnings) {
      std::printf("%s\n", line.c_str());
      EXPECT_THAT(line, HasSubstr(c.warning));
      EXPECT_THAT(line, ::testing::ContainsRegex("per step leave the node, about [0-9.e-]+ s at [0-9.]+ .B/s; "));
    }
    if (c.turns) continue;  // the plan's ranks are consecutive
    std::vector<std::string> plan{"plan", folder_ / "tiny.toml", "--json", "--per-node", "2"};
    plan.insert(plan.end(), arguments.begin(), arguments.end());
    const Outcome planned = run_program(plan);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const double predicted = nlohmann::json::parse(planned.out)["placement"]["crossing_bytes"]["all"].get<double>();
    std::printf("%s: %.0f bytes per step cross by the plan, %.0f at the cable\n", c.layout.c_str(), predicted, sent);
    EXPECT_GE(sent, 0.999 * predicted);
    EXPECT_LE(sent, 1.1 * predicted);  // with headers of packets and records of calls
  }
}

TEST_F(TwoHosts, ARankThatIsKilledIsNamedOnBoth) {
  for (const int victim : {2, 3}) {  // the one that talks to the other host, and one that does not
    const auto ranks = begin("2+2");
    ASSERT_TRUE(ranks.contains(victim));
    kill(ranks.at(victim), SIGKILL);
    const Drill::Ended ended = drill_.end();
    const std::string gone =
        "rank " + std::to_string(victim) + " (process " + std::to_string(ranks.at(victim)) + ") is gone";
    for (const int rank : {0, 1, 5 - victim}) {
      EXPECT_EQ(ended.ranks.at(rank).code, 5) << ended.text();
      EXPECT_LT(ended.ranks.at(rank).seconds, kDeadline) << ended.text();
      EXPECT_THAT(ended.ranks.at(rank).words, HasSubstr(gone)) << ended.text();
    }
    expect_nothing_left(ended);
    std::filesystem::remove_all(drill_.out());
  }
}

// Nobody beside it sees that it is gone: mpirun does, and ends the others.
TEST_F(TwoHosts, ARankThatIsKilledAloneOnItsHostEndsTheRun) {
  const auto ranks = begin("3+1");
  ASSERT_TRUE(ranks.contains(3));
  kill(ranks.at(3), SIGKILL);
  const Drill::Ended ended = drill_.end();
  EXPECT_NE(ended.launcher.code, 0);
  EXPECT_THAT(ended.launcher.err, ::testing::ContainsRegex("Process name: \\[\\[[0-9]+,1\\],3\\]")) << ended.text();
  EXPECT_LT(ended.seconds, kDeadline + 5) << ended.text();
  expect_nothing_left(ended);
}

TEST_F(TwoHosts, ARankThatStandsStillIsNamedOnBoth) {
  for (const int victim : {2, 3}) {
    const auto ranks = begin("2+2");
    ASSERT_TRUE(ranks.contains(victim));
    kill(ranks.at(victim), SIGSTOP);
    const Drill::Ended ended = drill_.end();
    const std::string late = "rank " + std::to_string(victim) + " has not come within 3 s";
    for (const int rank : {0, 1, 5 - victim}) {
      EXPECT_EQ(ended.ranks.at(rank).code, 5) << ended.text();
      EXPECT_LT(ended.ranks.at(rank).seconds, kDeadline + 2) << ended.text();
      EXPECT_THAT(ended.ranks.at(rank).words, HasSubstr(late)) << ended.text();
    }
    expect_nothing_left(ended);
    std::filesystem::remove_all(drill_.out());
  }
}

TEST_F(TwoHosts, WhenTheCableIsCutEachNamesTheOthersRanks) {
  const auto ranks = begin("2+2");
  ASSERT_TRUE(ranks.contains(3));
  const std::string cut = "nsenter -t " + std::to_string(ranks.at(3)) + " -n ip link set cable down";
  ASSERT_EQ(std::system(cut.c_str()), 0);
  const Drill::Ended ended = drill_.end();
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(ended.ranks.at(rank).code, 5) << ended.text();
    EXPECT_LT(ended.ranks.at(rank).seconds, kDeadline + 2) << ended.text();
    EXPECT_THAT(ended.ranks.at(rank).words,
                HasSubstr(rank < 2 ? "ranks 2, 3 have not come within 3 s" : "ranks 0, 1 have not come within 3 s"))
        << ended.text();
  }
  expect_nothing_left(ended);
}

}  // namespace
}  // namespace lockstep::tests
