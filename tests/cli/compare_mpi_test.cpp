// compare under mpirun and over a simulated link, as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* const kLinkedRun = R"(
[model]
family = "llama"
vocabulary = 16
layers = 2
width = 32
heads = 2
ffn_width = 64
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 16
order = 1
[train]
global_batch = 4
[run]
threads = 1
)";

class CompareOverLink : public ::testing::Test {
 protected:
  CompareOverLink() { std::ofstream(folder_ / "tiny.toml") << kLinkedRun; }
  json compare(std::vector<std::string> more) const {
    more.insert(more.begin(), {"compare", folder_ / "tiny.toml", "--json", "--steps", "3"});
    const Outcome o = run_program(more);
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out);
  }
  TemporaryFolder folder_;
};

// The same training, byte for byte as planned; a step takes at least what its messages take on the link.
TEST_F(CompareOverLink, AStepTakesItsMessagesTimeAndNothingElseChanges) {
  const std::vector<std::string> layouts{"--layout", "dp=2,overlap=off", "--layout", "pp=2,micro=2"};
  const json without = compare(layouts);
  std::vector<std::string> more = layouts;
  more.insert(more.end(), {"--link", "5ms,1MB/s"});
  const json with = compare(more);
  EXPECT_EQ(with["link"]["bytes_per_second"], 1e6);
  EXPECT_EQ(with["link"]["latency_seconds"], 5e-3);
  EXPECT_TRUE(without["link"].is_null());
  ASSERT_EQ(with["layouts"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const json &slow = with["layouts"][i], &fast = without["layouts"][i];
    EXPECT_TRUE(slow["ok"]) << slow;
    EXPECT_EQ(slow["loss"], fast["loss"]);
    EXPECT_EQ(slow["messages"], fast["messages"]);
    EXPECT_TRUE(slow["predicted"].is_null()) << slow;
    EXPECT_FALSE(fast["predicted"].is_null()) << fast;
  }
  // DDP over two ranks sends all of the gradient, in two latencies; loss and norm are two more messages of two each.
  const json& ddp = with["layouts"][0];
  const double bytes = ddp["messages"]["measured"]["bytes"], link = bytes / 1e6 + 2 * 5e-3;
  EXPECT_GT(bytes, 5e4);
  EXPECT_GE(ddp["step_seconds"], link);
  EXPECT_GE(ddp["exposed_seconds"], link);
  EXPECT_LT(ddp["step_seconds"], 2 * (link + 4 * 5e-3) + 0.5);
  EXPECT_LT(without["layouts"][0]["step_seconds"], link);
}

TEST_F(CompareOverLink, TheTableSaysWhatIsNotPredicted) {
  const Outcome o =
      run_program({"compare", folder_ / "tiny.toml", "--steps", "1", "--layout", "dp=2", "--link", "1GB/s,50us"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\nBetween ranks is a simulated link: 1 GB/s and 50 us per message. Times are "
                               "measured, not predicted.\n"));
}

class CompareUnderMpi : public CompareOverLink {
 protected:
  // Rank 1 may have other arguments.
  Outcome run(const std::string& more, const std::string& of_other = "") const {
    const std::string program = LOCKSTEP_BINARY " compare " + (folder_ / "tiny.toml") + " ";
    const std::string command = "exec 2>&1; mpirun --allow-run-as-root --oversubscribe --bind-to none -n 1 " + program +
                                more + " : -n 1 " + program + (of_other.empty() ? more : of_other);
    FILE* pipe = popen(command.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> part;
    for (std::size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) outcome.out.append(part.data(), n);
    const int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }
  void SetUp() override {
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun here";
    if (kUnderSanitizer) GTEST_SKIP() << "Open MPI itself leaks";
    if (run_in_shell("bench comm --help").out.empty()) GTEST_SKIP() << "no program";
    if (run("--layout tp=3").out.find("built without MPI") != std::string::npos) GTEST_SKIP() << "built without MPI";
  }
};

// One answer, of rank 0: what threads have, but that each process has its own text (here: none).
TEST_F(CompareUnderMpi, TheProcessesAreTheRanksAndHaveWhatThreadsHave) {
  const std::string layouts = "--layout zero=3,micro=2 --layout tp=2 --layout pp=2,micro=2 --layout cp=2";
  const Outcome o = run("--json --steps 2 " + layouts);
  ASSERT_EQ(o.code, 0) << o.out;
  const json mine = json::parse(o.out);
  const json theirs =
      json::parse(run_in_shell("compare " + (folder_ / "tiny.toml") + " --ranks 2 --json --steps 2 " + layouts).out);
  EXPECT_EQ(mine["ranks_are"], "processes");
  EXPECT_EQ(theirs["ranks_are"], "threads");
  EXPECT_TRUE(mine["ok"]);
  ASSERT_EQ(mine["layouts"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const json &a = mine["layouts"][i], &b = theirs["layouts"][i];
    SCOPED_TRACE(a["layout"].get<std::string>());
    EXPECT_EQ(a["layout"], b["layout"]);
    EXPECT_EQ(a["loss"], b["loss"]);
    EXPECT_EQ(a["messages"], b["messages"]);
    EXPECT_EQ(a["memory"]["peak"]["measured"], a["memory"]["peak"]["predicted"]);
    EXPECT_EQ(a["memory"]["peak_of_ranks"].size(), 2u);
    EXPECT_EQ(a["memory"]["tags"]["activation"], b["memory"]["tags"]["activation"]);
    EXPECT_GT(a["step_seconds"], 0);
    EXPECT_EQ(a["bubble"].is_null(), a["layout"].get<std::string>().find("pp=") == std::string::npos);
    EXPECT_TRUE(a["predicted"].is_null());
  }
}

TEST_F(CompareUnderMpi, MistakesAndDisagreementsAreToldOnce) {
  const std::array<std::string, 3> cases[] = {
      {"--layout dp=4", "", "lockstep: 2 processes: dp=4 makes 4 ranks; leave dp out, or use -n 4\n"},
      {"--layout tp=3", "", "lockstep: 2 processes: tp (3) does not divide 2 ranks; use -n 3, or a smaller tp\n"},
      {"--ranks 3", "", "lockstep: --ranks 3 under a launcher, whose ranks are its 2 processes; leave --ranks out\n"},
      {"--layout dp=2", "--layout tp=2",
       "lockstep: rank 1 has layouts = tp=2, rank 0 has dp=2; start all ranks with the same settings\n"},
      {"--steps 2", "--steps 3",
       "lockstep: rank 1 has --steps = 3, rank 0 has 2; start all ranks with the same settings\n"},
      {"--set optim.lr=1", "--set optim.lr=2", "lockstep: rank 1 has optim.lr = 2"},
  };
  for (const auto& [first, second, says] : cases) {
    const Outcome o = run(first, second);
    EXPECT_EQ(o.code, 2) << o.out;
    const std::size_t at = o.out.find(says);
    ASSERT_NE(at, std::string::npos) << o.out;
    EXPECT_EQ(o.out.find("lockstep: ", at + 1), std::string::npos) << o.out;
  }
}

}  // namespace
}  // namespace lockstep::tests
