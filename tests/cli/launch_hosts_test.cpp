// Which hosts a launch has: lists of nodes, what Slurm says in the environment, and the words of another host's start.
#include "cli/launch_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Names = std::vector<std::string>;

template <class Body>
std::string refusal_of(const Body& body) {
  try {
    body();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_LT(text.size(), 1000u);
    return text;
  }
  return "";
}

TEST(NodeList, IsExpandedAsSlurmWritesIt) {
  EXPECT_EQ(expand_node_list("a"), Names{"a"});
  EXPECT_EQ(expand_node_list("a[1-3,07],b"), (Names{"a1", "a2", "a3", "a07", "b"}));
  EXPECT_EQ(expand_node_list("gpu[008-011]"), (Names{"gpu008", "gpu009", "gpu010", "gpu011"}));
  EXPECT_EQ(expand_node_list("b,a[2,1],10.0.0.7,fe80::1"), (Names{"b", "a2", "a1", "10.0.0.7", "fe80::1"}));
  EXPECT_EQ(expand_node_list("n[0-4095]").size(), 4096u);
}

TEST(NodeList, ThatIsNoneIsRefusedInOneLine) {
  const std::string digits(100'000, '0');
  for (const std::string& list :
       {std::string(","), std::string("a,"), std::string("a[1-3"), std::string("a]1["), std::string("a[3-1]"),
        std::string("a[x]"), std::string("a[-1]"), std::string("a[1-2]b"), std::string("a[[1]]"), std::string("a b"),
        std::string("-oProxyCommand=x"), std::string("$(x)"), std::string("a\nb"),
        std::string("a[1-99999999999999999999]"), "a[" + digits + "1]", "a[0-4095" + std::string(1'000, ',') + "]b[x"})
    EXPECT_THAT(refusal_of([&] { expand_node_list(list); }), HasSubstr("is no list of nodes")) << list.substr(0, 40);
  std::string many = "a[0-4000";
  for (int i = 0; i < 10'000; ++i) many += ",0-4000";
  EXPECT_THAT(refusal_of([&] { expand_node_list(many + "]"); }), HasSubstr("more than 4096 nodes"));
}

class SlurmHosts : public ::testing::Test {
 protected:
  LaunchHosts hosts(const std::string& listed = "", const std::string& host = "") const {
    return launch_hosts(listed, host, [this](const char* name) {
      const auto at = variables_.find(name);
      return at == variables_.end() ? nullptr : at->second.c_str();
    });
  }
  int queued_again() const {
    return times_queued_again([this](const char* name) {
      const auto at = variables_.find(name);
      return at == variables_.end() ? nullptr : at->second.c_str();
    });
  }

  std::map<std::string, std::string> variables_{{"SLURM_JOB_ID", "7"},           {"SLURM_STEP_ID", "0"},
                                                {"SLURM_PROCID", "2"},           {"SLURM_NODEID", "2"},
                                                {"SLURM_STEP_NUM_TASKS", "3"},   {"SLURM_STEP_NODELIST", "a[1-2],b"},
                                                {"SLURM_JOB_NODELIST", "a[1-9]"}};
};

TEST_F(SlurmHosts, AreTheNodesOfTheStep) {
  const LaunchHosts found = hosts();
  EXPECT_THAT(found.names, ElementsAre("a1", "a2", "b"));
  EXPECT_EQ(found.mine, 2);
  EXPECT_TRUE(found.by_scheduler);
}

TEST_F(SlurmHosts, AreThisOneAloneInABatchScriptAndOnASingleNode) {
  variables_.erase("SLURM_STEP_ID");
  EXPECT_TRUE(hosts().names.empty());
  variables_["SLURM_STEP_ID"] = "0";
  variables_["SLURM_STEP_NODELIST"] = "a1";
  variables_["SLURM_STEP_NUM_TASKS"] = "1";
  variables_["SLURM_NODEID"] = "0";
  EXPECT_TRUE(hosts().names.empty());
  EXPECT_FALSE(hosts().by_scheduler);
}

TEST_F(SlurmHosts, AreThoseOfTheCommandLineWhereItNamesSome) {
  const LaunchHosts found = hosts("x,y", "y");
  EXPECT_THAT(found.names, ElementsAre("x", "y"));
  EXPECT_EQ(found.mine, 1);
  EXPECT_FALSE(found.by_scheduler);
  EXPECT_THAT(refusal_of([&] { hosts("x,y", "z"); }), HasSubstr("--host z is none of --hosts; name one of the list"));
  EXPECT_THAT(refusal_of([&] { hosts("x,x"); }), HasSubstr("names a host twice"));
  EXPECT_THAT(refusal_of([&] { hosts("", "x"); }), HasSubstr("--host is given without --hosts"));
}

TEST_F(SlurmHosts, OfSeveralTasksPerNodeAreRefused) {
  variables_["SLURM_STEP_NUM_TASKS"] = "6";
  EXPECT_THAT(refusal_of([&] { hosts(); }), AllOf(HasSubstr("6 tasks on 3 nodes"), HasSubstr("--ntasks-per-node=1")));
  variables_["SLURM_STEP_NODELIST"] = "a1";
  variables_["SLURM_NODEID"] = "0";
  variables_["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_THAT(refusal_of([&] { hosts(); }), HasSubstr("4 tasks on 1 node; start one"));
}

TEST_F(SlurmHosts, WhoseVariablesMakeNoSenseAreRefusedInOneLine) {
  for (const char* place : {"3", "-1", "x", "", "99999999999999999999", "1 "}) {
    variables_["SLURM_NODEID"] = place;
    EXPECT_THAT(refusal_of([&] { hosts(); }), HasSubstr("in a step of 3 nodes; start launch with srun")) << place;
  }
  variables_["SLURM_NODEID"] = "0";
  for (const char* list : {"", "a[1-", "a;reboot", "a[1-5000]"}) {
    variables_["SLURM_STEP_NODELIST"] = list;
    EXPECT_THAT(refusal_of([&] { hosts(); }), Not("")) << list;
  }
}

// mpirun inside of a job has tasks of its own.
TEST_F(SlurmHosts, AreNoneOfAnMpirunInTheJob) {
  variables_["OMPI_COMM_WORLD_SIZE"] = "3";
  EXPECT_TRUE(hosts().names.empty());
}

TEST_F(SlurmHosts, KnowHowOftenTheJobWasQueuedAgain) {
  EXPECT_EQ(queued_again(), 0);
  variables_["SLURM_RESTART_COUNT"] = "2";
  EXPECT_EQ(queued_again(), 2);
  for (const char* count : {"", "x", "-1", "99999999999"}) {
    variables_["SLURM_RESTART_COUNT"] = count;
    EXPECT_THAT(refusal_of([&] { queued_again(); }), HasSubstr("SLURM_RESTART_COUNT is")) << count;
  }
  variables_.erase("SLURM_JOB_ID");
  EXPECT_EQ(queued_again(), 0);
}

TEST(SchedulerRanks, AreForgottenAndNothingElse) {
  for (const char* name : {"PMI_RANK", "PMI2_SIZE", "PMIX_RANK", "PMIX_SERVER_URI4"}) ::setenv(name, "1", 1);
  ::setenv("PMIXED", "kept", 1);
  forget_scheduler_ranks();
  for (const char* name : {"PMI_RANK", "PMI2_SIZE", "PMIX_RANK", "PMIX_SERVER_URI4"})
    EXPECT_EQ(::getenv(name), nullptr);
  EXPECT_STREQ(::getenv("PMIXED"), "kept");
  ::unsetenv("PMIXED");
}

TEST(RemoteCommand, NamesTheHostAndIsQuotedForAShell) {
  const Names command{"/opt/my tools/lockstep", "launch", "--out", "it's here", "$HOME;reboot"};
  EXPECT_THAT(
      remote_command("ssh -p 22 {host}", "b", command, "/data/a b"),
      ElementsAre("ssh", "-p", "22", "b",
                  R"(cd '/data/a b' && exec '/opt/my tools/lockstep' 'launch' '--out' 'it'\''s here' '$HOME;reboot')"));
  EXPECT_THAT(remote_command("ip netns exec {host}", "b", {"lockstep", "a b"}, "/data"),
              ElementsAre("ip", "netns", "exec", "b", "lockstep", "a b"));
  EXPECT_THAT(remote_command("/usr/bin/ssh", "b", {"x"}, "/"), ElementsAre("/usr/bin/ssh", "b", "cd '/' && exec 'x'"));
  EXPECT_THAT(refusal_of([] { remote_command("  ", "b", {"x"}, "/"); }), HasSubstr("--remote is empty"));
}

}  // namespace
}  // namespace lockstep::tests
