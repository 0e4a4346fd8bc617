// lockstep launch --remote: one launch starts the agents of other hosts, over ssh or by any command, and what goes
// wrong there is one line with a remedy. Hosts are addresses of this machine; ssh is a real one where sshd is
// installed.
#include <sys/stat.h>
#include <unistd.h>

#include "comm/control_ranks.h"
#include "launch/agent_link.h"
#include "launch/launched_hosts.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class Remote : public LaunchedHosts {
 protected:
  Remote() {
    // As ssh: HOST and then what runs there.
    std::ofstream(script()) << "#!/bin/sh\nshift\nexec \"$@\"\n";
    ::chmod(script().c_str(), 0700);
  }
  std::string script() const { return folder_ / "on"; }
  // Of both hosts, from the first.
  Arguments launch(int steps, const std::string& remote, const Arguments& more = {}) const {
    Arguments all = training("launch", out(), steps, more);
    all.insert(all.end(), {"--hosts", host(0) + "," + host(1), "--remote", remote});
    return all;
  }
  static long lines_with(const std::string& text, const std::string& part) {
    long count = 0;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) count += line.find(part) != std::string::npos;
    return count;
  }
  // What it has said once the line is there; it is ended then.
  static std::string told(Program& program, const std::string& err_of) {
    comes([&] { return program.has_ended() || text_of(program.err()).find(err_of) != std::string::npos; }, 30);
    std::this_thread::sleep_for(std::chrono::seconds(4));  // further tries are not further lines
    program.signal(SIGTERM);
    return program.wait().err;
  }
};

TEST_F(Remote, AnyCommandStartsTheOthersAndTheRunHasTheBitsOfThreads) {
  const std::string unbroken = folder_ / "unbroken";
  ASSERT_EQ(run_program(training("train", unbroken, 60)).code, 0);
  const Outcome outcome = run_program(launch(60, script() + " {host}"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(results_in(out()), results_in(unbroken));
}

TEST_F(Remote, CtrlCEndsAllHostsAfterASave) {
  Program program(launch(1'000'000, script(), {"--set", "train.save_every=0"}));
  ASSERT_TRUE(reaches(10));
  const auto pid = static_cast<pid_t>(now(1)->pid);
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(text_of(out() + "/log.txt"), AllOf(HasSubstr("checkpoint saved"), HasSubstr("stopped after step")));
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_FALSE(fs::exists(out() + "/.launch"));
}

TEST_F(Remote, AHostWithoutTheProgramIsToldOnceWithARemedy) {
  std::ofstream(script()) << "#!/bin/sh\nexec /no/such/lockstep\n";
  Program program(launch(100, script()));
  const std::string err = told(program, "has no lockstep");
  EXPECT_EQ(lines_with(err, host(1) + " has no lockstep where this host has it (exit code 127): install it at the same "
                                      "path, or mend --remote"),
            1)
      << err;
}

TEST_F(Remote, ACommandThatIsNotThereIsToldOnce) {
  Program program(launch(100, "/no/such/ssh {host}"));
  EXPECT_EQ(lines_with(told(program, "cannot be started"), host(1) + ": /no/such/ssh cannot be started"), 1);
}

TEST_F(Remote, AnAgentThatIsStartedWronglySaysWhyAndIsNotTriedAgain) {
  std::ofstream(script()) << "#!/bin/sh\nshift\nexec \"$@\" --host 127.0.0.77\n";
  Program program(launch(100, script()));
  const std::string err = told(program, "refuses to start");
  EXPECT_EQ(lines_with(err, "the agent of " + host(1) + " refuses to start and is not started again"), 1) << err;
}

TEST_F(Remote, AnAgentOfAnotherVersionIsRefusedWithBothVersions) {
  const auto leader = agent(0, 100);
  ASSERT_TRUE(comes([&] { return fs::exists(out() + "/.launch/agent-0"); }));
  AgentFolder folder(out(), 1);
  AgentLink link(folder, host(1), [](const std::string&) {});
  const AgentMessage join{
      .kind = AgentMessageKind::join, .agent = 1, .facts = {.name = "b", .slots = 1}, .version = "0.0 (old)"};
  ASSERT_EQ(link.connect(0, join, 5), "");
  std::string refusal;
  comes([&] {
    std::vector<pollfd> polled;
    link.watch(polled);
    ::poll(polled.data(), polled.size(), 20);
    link.serve(polled);
    for (const AgentLink::Received& one : link.take()) refusal += one.message.text;
    return !refusal.empty();
  });
  EXPECT_THAT(refusal, AllOf(HasSubstr("b runs lockstep 0.0 (old), and the leading agent "),
                             HasSubstr("install the same on all hosts")));
  leader->signal(SIGTERM);
  leader->wait();
}

TEST_F(Remote, ASecondLaunchOnTheFolderIsRefused) {
  Program program(launch(1'000'000, script()));
  ASSERT_TRUE(reaches(1));
  const Outcome second = run_program(launch(100, script(), {"--resume"}));
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(std::ranges::count(second.err, '\n'), 1) << second.err;
  EXPECT_THAT(second.err, HasSubstr("another launch is at work in"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().code, 0);
}

// A server of this test alone, with keys and a configuration of its own.
class OverSsh : public Remote {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || ::access("/usr/sbin/sshd", X_OK) != 0)
      GTEST_SKIP() << "no sshd here (Debian: openssh-server), or not root";
    const auto run = [](const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()); };
    const std::string at = folder_.path().string();
    ASSERT_EQ(run("mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f " + at +
                  "/host && ssh-keygen -q -t ed25519 "
                  "-N '' -f " +
                  at + "/user && cp " + at + "/user.pub " + at + "/authorized && chmod 600 " + at + "/authorized"),
              0);
    const int port = control::Coordinator({.token = control::Token::make()}).port();
    std::ofstream(folder_ / "sshd.conf") << fmt::format(
        "Port {0}\nListenAddress 127.0.0.42:{0}\nHostKey {1}/host\nAuthorizedKeysFile {1}/authorized\nPidFile "
        "{1}/sshd.pid\n"
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
        port, at);
    std::ofstream(folder_ / "ssh.conf") << fmt::format(
        "Host *\n  Port {}\n  IdentityFile {}/user\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n"
        "  LogLevel ERROR\n  BatchMode yes\n  ConnectTimeout 5\n",
        port, at);
    ASSERT_EQ(run("/usr/sbin/sshd -f " + at + "/sshd.conf -E " + at + "/sshd.log"), 0) << text_of(folder_ / "sshd.log");
    ASSERT_TRUE(comes([&] { return fs::exists(folder_ / "sshd.pid"); }, 5)) << text_of(folder_ / "sshd.log");
  }
  void TearDown() override {
    if (const int pid = std::atoi(text_of(folder_ / "sshd.pid").c_str()); pid > 1) ::kill(pid, SIGTERM);
  }
  std::string ssh() const { return "ssh -F " + (folder_ / "ssh.conf") + " {host}"; }
};

// A program, a run file and a run folder whose names a shell would take apart.
TEST_F(OverSsh, TheAgentStartsWithItsPathsAsTheyAre) {
  const std::string odd = folder_ / "it's a $folder; x";
  fs::create_directories(odd);
  fs::copy_file(LOCKSTEP_BINARY, odd + "/lock step");
  fs::copy_file(folder_ / "tiny.toml", odd + "/tiny run.toml");
  const Outcome outcome = [&] {
    Program program({"launch", "tiny run.toml", "--out", "the run", "--ranks", "2", "--set", "train.steps=30",
                     "--hosts", host(0) + "," + host(1), "--remote", ssh()},
                    odd, {"sh", "-c", "shift; exec './lock step' \"$@\"", "sh"});
    return program.wait();
  }();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses_in(odd + "/the run").size(), 30u + 10u);  // and evaluations
}

TEST_F(OverSsh, AnUnreachableHostIsToldOnceAndCtrlCEndsAll) {
  Arguments all = training("launch", out(), 100);
  all.insert(all.end(), {"--hosts", host(0) + ",127.0.0.43", "--remote", ssh()});
  {
    Program program(all);
    const std::string err = told(program, "cannot be reached");
    EXPECT_EQ(lines_with(err, "127.0.0.43 cannot be reached by --remote"), 1) << err;
  }
  Program program(launch(1'000'000, ssh(), {"--resume", "--set", "train.save_every=0"}));
  ASSERT_TRUE(reaches(10));
  const auto pid = static_cast<pid_t>(now(1)->pid);
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(text_of(out() + "/log.txt"), HasSubstr("checkpoint saved"));
  EXPECT_TRUE(comes([&] { return ::kill(pid, 0) != 0; }, 10));
}

}  // namespace
}  // namespace lockstep::tests
