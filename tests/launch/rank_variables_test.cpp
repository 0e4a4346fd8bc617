// Ranks that are processes on the cpu, started by whoever sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
// MASTER_PORT, as torchrun does: the program as a user runs it.
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "comm/control_ranks.h"
#include "launch/launched_hosts.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

int free_port() { return control::Coordinator({.token = control::Token::make()}).port(); }

class RankVariables : public LaunchedHosts {
 protected:
  Arguments train(const std::string& out, int ranks, int steps) const {
    Arguments all = training("train", out, steps, {"--quiet"});
    std::erase(all, "--ranks"), std::erase(all, "2");
    all.insert(all.end(), {"--ranks", std::to_string(ranks)});
    return all;
  }
  // `host`: a name of its own for the machine, where it is not "".
  std::unique_ptr<Program> rank(int rank, int ranks, int port, int steps, const std::string& host = "") const {
    Arguments words{"env",
                    fmt::format("RANK={}", rank),
                    fmt::format("WORLD_SIZE={}", ranks),
                    fmt::format("LOCAL_RANK={}", rank),
                    "MASTER_ADDR=127.0.0.1",
                    fmt::format("MASTER_PORT={}", port)};
    if (!host.empty()) {
      const Arguments named{"unshare", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host};
      words.insert(words.begin(), named.begin(), named.end());
    }
    return std::make_unique<Program>(train(out(), ranks, steps), "/", words);
  }
  void expect_bits_of_threads(const std::vector<std::string>& hosts, int steps) {
    const int ranks = static_cast<int>(hosts.size()), port = free_port();
    const std::string threads = folder_ / "threads";
    ASSERT_EQ(run_program(train(threads, ranks, steps)).code, 0);
    std::vector<std::unique_ptr<Program>> all;
    for (int r = 0; r < ranks; ++r) all.push_back(rank(r, ranks, port, steps, hosts[static_cast<std::size_t>(r)]));
    for (const auto& one : all) {
      const Outcome outcome = one->wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.err, "");
    }
    EXPECT_EQ(results_in(out()), results_in(threads));
    EXPECT_FALSE(fs::exists(out() + "/.control"));
  }
};

TEST_F(RankVariables, OfOneHostGiveTheBitsOfThreads) { expect_bits_of_threads({"", "", ""}, 40); }

// Hosts are told apart by their names: what goes between them goes over TCP.
TEST_F(RankVariables, OfTwoHostsGiveTheBitsOfThreads) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a process a host name of its own";
  expect_bits_of_threads({"first", "first", "second"}, 40);
  EXPECT_EQ(now(0)->host, "first");
  EXPECT_EQ(now(2)->host, "second");
}

TEST_F(RankVariables, ARankThatIsKilledIsNamedByTheOthers) {
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> all;
  for (int r = 0; r < 3; ++r) all.push_back(rank(r, 3, port, 1'000'000));
  ASSERT_TRUE(reaches(5));
  all[1]->signal(SIGKILL);
  for (const int r : {0, 2}) {
    const Outcome outcome = all[static_cast<std::size_t>(r)]->wait();
    EXPECT_EQ(outcome.code, 5);
    EXPECT_THAT(outcome.err, HasSubstr("rank 1")) << r;
  }
  all[1]->wait();
}

TEST_F(RankVariables, ThatAreWrongAreRefusedInOneLine) {
  using Variables = std::map<std::string, std::string>;
  const Variables good{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value, answer] : std::vector<std::array<std::string, 3>>{
           {"RANK", "2", "RANK is '2'; the launcher sets it to a number from 0 to 1"},
           {"RANK", "x", "RANK is 'x'"},
           {"WORLD_SIZE", "0", "WORLD_SIZE is '0'"},
           {"WORLD_SIZE", "99999999999", "WORLD_SIZE is"},
           {"LOCAL_RANK", "-1", "LOCAL_RANK is '-1'"},
           {"MASTER_PORT", "70000", "MASTER_PORT is '70000'"},
           {"MASTER_PORT", "80; reboot", "MASTER_PORT is '80; reboot'"},
           {"MASTER_ADDR", "", "MASTER_ADDR is empty"},
           {"MASTER_ADDR", "203.0.113.7", "MASTER_ADDR is '203.0.113.7' and MASTER_PORT 29500"},
           {"MASTER_ADDR", "no\nhost", "MASTER_ADDR is"},
           {"WORLD_SIZE", "3", "WORLD_SIZE=3 for a layout of 2 ranks"}}) {
    Variables variables = good;
    variables[name] = value;
    Arguments words{"env"};
    for (const auto& [key, text] : variables) words.push_back(key + "=" + text);
    const Outcome outcome = Program(train(out(), 2, 5), "/", words).wait();
    EXPECT_EQ(outcome.code, 2) << answer;
    EXPECT_THAT(outcome.err, HasSubstr(answer));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
}

// Whoever may read the run folder, the output, or the list of processes with their variables, does not learn a token.
class TokensOfTheProgram : public RankVariables {
 protected:
  static std::set<std::string> tokens_in(const std::string& file) {
    std::set<std::string> tokens;
    std::ifstream in(file);
    for (std::string word; in >> word;)
      if (word.size() == 64) tokens.insert(word);
    struct stat status {};
    EXPECT_EQ(::stat(file.c_str(), &status), 0) << file;
    EXPECT_EQ(status.st_mode & 07777, 0600u) << file;
    return tokens;
  }
  static void expect_nowhere(const std::set<std::string>& tokens, const std::string& text, const std::string& where) {
    for (const std::string& token : tokens) EXPECT_EQ(text.find(token), std::string::npos) << where;
  }
  // In files beside their own, and in /proc of every process; how many processes of ours were looked at.
  int search(const std::set<std::string>& tokens) const {
    std::error_code gone;  // what the run removes meanwhile
    for (fs::recursive_directory_iterator at(folder_.path(), gone), end; !gone && at != end; at.increment(gone))
      if (at->is_regular_file(gone) && at->path().filename() != ".control" && at->path().filename() != "token")
        expect_nowhere(tokens, text_of(at->path()), at->path());
    int ours = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      if (!std::isdigit(entry.path().filename().string().front())) continue;
      const std::string words = text_of(entry.path() / "cmdline");
      ours += words.find(out()) != std::string::npos;
      expect_nowhere(tokens, words, entry.path() / "cmdline");
      expect_nowhere(tokens, text_of(entry.path() / "environ"), entry.path() / "environ");
    }
    return ours;
  }
};

TEST_F(TokensOfTheProgram, AreInTheirFileAloneUnderALaunchersVariables) {
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> all;
  for (int r = 0; r < 2; ++r) all.push_back(rank(r, 2, port, 1'000'000));
  ASSERT_TRUE(reaches(45));  // with checkpoints
  const std::set<std::string> tokens = tokens_in(out() + "/.control");
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_GE(search(tokens), 2);
  for (const auto& one : all) one->signal(SIGTERM);
  for (const auto& one : all) {
    const Outcome outcome = one->wait();
    expect_nowhere(tokens, outcome.out + outcome.err, "output");
  }
  search(tokens);
}

TEST_F(TokensOfTheProgram, AreInTheirFilesAloneUnderLaunch) {
  std::unique_ptr<Program> agents[2] = {agent(0, 1'000'000), agent(1, 1'000'000)};
  ASSERT_TRUE(reaches(45));
  std::set<std::string> tokens = tokens_in(out() + "/.launch/token");
  tokens.merge(tokens_in(out() + "/.control"));
  ASSERT_EQ(tokens.size(), 2u);
  struct stat status {};
  ASSERT_EQ(::stat((out() + "/.launch").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  for (const auto& entry : fs::directory_iterator(out() + "/.launch")) {
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u) << entry.path();
  }
  EXPECT_GE(search(tokens), 4);
  agents[0]->signal(SIGTERM);
  for (const auto& one : agents) {
    const Outcome outcome = one->wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    expect_nowhere(tokens, outcome.out + outcome.err, "output");
  }
  search(tokens);
}

}  // namespace
}  // namespace lockstep::tests
