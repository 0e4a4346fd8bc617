// bench comm as a user meets it, and what it measures with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "bench/comm_trial.h"
#include "comm/threads/run_ranks.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<CommOp> kMeasured{CommOp::all_reduce, CommOp::reduce_scatter, CommOp::all_gather, CommOp::broadcast,
                                    CommOp::reduce,     CommOp::gather,         CommOp::scatter,    CommOp::all_to_all};

nlohmann::json rows_of(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"bench", "comm", "--json", "--seconds", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome o = run_program(arguments);
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out);
}

TEST(BenchComm, MeasuresEveryAlgorithmOverSizesAndRanks) {
  std::set<std::string> seen;
  for (const auto& row : rows_of({"--sizes", "4KiB,1MiB", "--ranks", "2,3"})) {
    seen.insert(fmt::format("{} {} {}", row["algorithm"].get<std::string>(), row["ranks"].get<int>(),
                            row["bytes"].get<std::int64_t>()));
    EXPECT_EQ(row["backend"], "threads");
    EXPECT_EQ(row["op"], "all_reduce");
    EXPECT_GE(row["rounds"], 5) << row;
    EXPECT_GT(row["seconds"], 0) << row;
    EXPECT_DOUBLE_EQ(row["rate"], row["bytes"].get<double>() / row["seconds"].get<double>());
    EXPECT_TRUE(row["over_native"].is_null()) << row;
    EXPECT_GT(row["of_copy"], 0) << row;
  }
  std::set<std::string> all;  // 4 KiB and 1 MiB have no thirds
  for (const char* algorithm : {"canonical", "ring", "tree"})
    for (const char* size : {"2 4096", "2 1048576", "3 4092", "3 1048572"})
      all.insert(fmt::format("{} {}", algorithm, size));
  EXPECT_EQ(seen, all);
}

TEST(BenchComm, SaysWhatARankSendsByTheory) {
  for (const auto& row : rows_of({"--sizes", "12KiB", "--ranks", "3", "--ops", "all_reduce,reduce,all_gather"})) {
    const std::string op = row["op"], algorithm = row["algorithm"];
    // By a tree of three, rank 0 takes part in a halving and answers for rank 2.
    const int expected = op == "reduce"        ? 12288
                         : op == "all_gather"  ? 8192
                         : algorithm == "tree" ? 12288 + 12288
                                               : 2 * 8192;
    EXPECT_EQ(row["sent"], expected) << row;
  }
}

TEST(BenchComm, MeasuresEveryOperation) {
  std::string ops;
  for (const CommOp op : kMeasured) ops += (ops.empty() ? "" : ",") + std::string(name_of(op));
  std::map<std::string, int> rows;
  for (const auto& row : rows_of({"--sizes", "300KiB", "--ranks", "3", "--ops", ops})) {
    ++rows[row["op"]];
    EXPECT_GT(row["of_copy"], 0) << row;
  }
  for (const CommOp op : kMeasured) EXPECT_EQ(rows[std::string(name_of(op))], reduces(op) ? 3 : 1) << name_of(op);
}

TEST(BenchComm, PrintsTheTableAsMarkdownToo) {
  const Outcome o = run_program({"bench", "comm", "--sizes", "4KiB", "--ranks", "2", "--seconds", "0", "--markdown"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("| backend | operation | algorithm | ranks | size |"));
  EXPECT_THAT(o.out, HasSubstr("\n| threads | all_reduce | ring | 2 | 4.00 KiB | 4.00 KiB |"));
}

TEST(BenchComm, MistakesAreOneLineWithARemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--ops", "allreduce"}, "scatter or all_to_all; did you mean 'all_reduce'?"},
      {{"--ops", "barrier"}, "--ops 'barrier': it must be all_reduce,"},
      {{"--ops", "all_reduce,"}, "--ops '': it must be all_reduce,"},
      {{"--algorithms", "rnig"},
       "--algorithms 'rnig': it must be canonical, ring, tree or native; did you mean 'ring'?"},
      {{"--algorithms", "native"}, "--algorithms native without MPI: on threads it is canonical; start under mpirun"},
      {{"--ops", "all_gather", "--algorithms", "ring"}, "all_gather is the same under each of these"},
      {{"--ranks", "0"}, "--ranks 0; give 2 to 1024"},
      {{"--ranks", "2,1"}, "--ranks 1: one rank exchanges nothing; give 2 to 1024"},
      {{"--ranks", "2000"}, "--ranks 2000; give 2 to 1024"},
      {{"--ranks", "two"}, "--ranks 'two'; give numbers as in 2,4,8"},
      {{"--sizes", "64kb"}, "--sizes '64kb'; give sizes as in"},
      {{"--sizes", "-1"}, "--sizes '-1'; give sizes as in"},
      {{"--sizes", "99999999GiB"}, "--sizes 95.4 PiB; give"},
      {{"--sizes", "99999999999999999999"}, "--sizes '99999999999999999999'; give sizes as in"},
      {{"--sizes", "16", "--ranks", "8"}, "--sizes 16 B; give 32 B (an element for each of 8 ranks) to 512 MiB"},
      {{"--seconds", "-1"}, "--seconds"},
      {{"--json", "--markdown"}, "--json"},
      {{"--rounds", "3"}, "--rounds"},
  };
  for (const auto& [more, says] : cases) {
    std::vector<std::string> arguments{"bench", "comm"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = run_program(arguments);
    EXPECT_EQ(o.code, 2) << more[0] << ' ' << more[1] << ' ' << o.err;
    EXPECT_THAT(o.err, HasSubstr(says));
    EXPECT_THAT(o.err, HasSubstr(";"));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_EQ(o.out, "");
  }
  const Outcome mixed = run_program({"bench", "--rounds", "3", "comm"});
  EXPECT_EQ(mixed.code, 2);
  EXPECT_EQ(mixed.err, "lockstep: --rounds is of lockstep bench, not of bench comm; leave it out\n");
  const Outcome large = run_program({"bench", "comm", "--sizes", "512MiB", "--ranks", "1024"});
  EXPECT_EQ(large.code, 3);
  EXPECT_THAT(large.err, HasSubstr("the tensors need 1.00 TiB, "));
}

TEST(BenchComm, CtrlCEndsItAfterTheRoundAtHand) {
  for (const char* form : {"--markdown", "--json"}) {
    const auto begin = std::chrono::steady_clock::now();
    Program program({"bench", "comm", "--ranks", "2", "--sizes", "64KiB", "--seconds", "20", form});
    if (form == std::string("--markdown"))
      program.wait_for_output("| ---: |\n");
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    program.signal(SIGINT);
    const Outcome o = program.wait();
    EXPECT_EQ(o.code, 130) << o.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
    EXPECT_THAT(o.out, StartsWith(form == std::string("--json") ? "[]\n" : "| backend"));
  }
}

// Under mpirun, two processes.
class BenchCommUnderMpi : public ::testing::Test {
 protected:
  static Outcome run(const std::string& more, const std::string& before = "") {
    const std::string command =
        "exec 2>&1; " + before +
        " mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 " LOCKSTEP_BINARY " bench comm " + more;
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
    if (run("--sizes 4KiB --seconds 0").out.find("built without MPI") != std::string::npos)
      GTEST_SKIP() << "built without MPI";
  }
};

TEST_F(BenchCommUnderMpi, ThreadsProcessesAndMpisOwnStandInOneTable) {
  const Outcome o = run("--seconds 0 --sizes 64KiB,1MiB --json --ops all_reduce,all_gather");
  ASSERT_EQ(o.code, 0) << o.out;
  std::set<std::string> seen;
  for (const auto& row : nlohmann::json::parse(o.out)) {
    seen.insert(fmt::format("{} {} {}", row["op"].get<std::string>(), row["backend"].get<std::string>(),
                            row["algorithm"].get<std::string>()));
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_GT(row["of_copy"], 0) << row;
    EXPECT_GT(row["over_native"], 0) << row;
    if (row["algorithm"] == "native") {
      EXPECT_EQ(row["over_native"], 1) << row;
    }
  }
  std::set<std::string> all{"all_gather threads canonical", "all_gather mpi canonical", "all_gather mpi native"};
  for (const char* which :
       {"threads canonical", "threads ring", "threads tree", "mpi canonical", "mpi ring", "mpi tree", "mpi native"})
    all.insert(std::string("all_reduce ") + which);
  EXPECT_EQ(seen, all);
}

TEST_F(BenchCommUnderMpi, MistakesAreToldByOneRank) {
  const std::string says = "lockstep: --ranks 4 under MPI, whose ranks are its 2 processes; leave --ranks out";
  // On a full machine mpirun may end the job, since a process left with 2, before it has passed the line on.
  Outcome o = run("--ranks 4");
  for (int i = 0; i < 4 && o.out.find("lockstep:") == std::string::npos; ++i) o = run("--ranks 4");
  EXPECT_EQ(o.code, 2) << o.out;
  const std::size_t at = o.out.find(says);
  ASSERT_NE(at, std::string::npos) << o.out;
  EXPECT_EQ(o.out.find(says, at + 1), std::string::npos) << o.out;
}

TEST_F(BenchCommUnderMpi, CtrlCEndsIt) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome o = run("--sizes 64KiB --seconds 60", "timeout -s INT -k 40 3");
  EXPECT_THAT(o.out, HasSubstr("backend  operation")) << o.out;  // it had begun
  EXPECT_NE(o.code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << o.out;
}

// What it measures with.

TEST(CommTrial, CopiesHalfOfWhatMustBeReadAndWritten) {
  constexpr std::int64_t kBytes = 16 * 4;  // n, over four ranks: all of them together copy four times this
  const std::map<CommOp, std::int64_t> all{
      {CommOp::all_reduce, 8 * kBytes / 2}, {CommOp::reduce_scatter, 5 * kBytes / 2},
      {CommOp::all_gather, 5 * kBytes / 2}, {CommOp::broadcast, 4 * kBytes / 2},
      {CommOp::reduce, 5 * kBytes / 2},     {CommOp::gather, 2 * kBytes / 2},
      {CommOp::scatter, 2 * kBytes / 2},    {CommOp::all_to_all, 8 * kBytes / 2}};
  for (const CommOp op : kMeasured) EXPECT_EQ(4 * least_copied({op, 4, 16}), all.at(op)) << name_of(op);
  EXPECT_EQ(least_copied({CommOp::all_reduce, 1, 16}), 0);
  EXPECT_EQ(least_copied({CommOp::broadcast, 1, 16}), 0);
}

// Says that all was done, and does nothing but barriers.
class Idle final : public Communicator {
 public:
  explicit Idle(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()), inner_(std::move(inner)) {}
  Started start(const Message& message) override {
    return message.op == CommOp::barrier ? inner_->start(message) : std::make_unique<NothingPending>();
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>&, const std::string&) override { return nullptr; }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST(CommTrial, AWrongResultIsNotTimed) {
  for (const CommOp op : kMeasured) {
    const CommTrial trial{op, 3, 3000};
    const auto proof = [&](bool idle) {
      run_ranks(3, [&](std::unique_ptr<Communicator> comm) {
        if (idle) comm = std::make_unique<Idle>(std::move(comm));
        std::vector<float> x(3000), y(3000);
        const auto tensor = [](std::vector<float>& of) {
          return Tensor(of.data(), DType::f32, Device::cpu, {std::ssize(of)});
        };
        prove(*comm, trial, Algorithm::canonical, {tensor(x), tensor(y)});
        EXPECT_EQ(x, std::vector<float>(3000));
        EXPECT_EQ(y, x);
      });
    };
    EXPECT_NO_THROW(proof(false)) << name_of(op);
    EXPECT_THROW(proof(true), ProgramError) << name_of(op);
  }
}

}  // namespace
}  // namespace lockstep::tests
