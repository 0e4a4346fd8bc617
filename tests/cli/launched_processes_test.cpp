// Ranks that a launcher starts as processes: what it says of them, how they meet, and what is told when they do not.
//
// Whole worlds are here without GPUs: each rank is a thread with a ProcessWorld of its own, over the real control
// plane, and thread ranks are in NCCL's place (comm/nccl_stand_in.h). With GPUs: tests/gpu/nccl_training_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "cli/launch_processes.h"
#include "comm/agreement.h"
#include "comm/nccl_stand_in.h"
#include "support/deadlines.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/host_values.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

using Settings = std::map<std::string, std::string>;

const Settings kRight = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

std::optional<LaunchedProcess> process_of(const Settings& settings) {
  return launched_process([&](const char* name) {
    const auto at = settings.find(name);
    return at == settings.end() ? nullptr : at->second.c_str();
  });
}

std::string words_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchVariables, SayWhichOfHowManyThisIs) {
  EXPECT_FALSE(process_of({}));
  EXPECT_FALSE(process_of({{"LOCAL_RANK", "x"}, {"MASTER_PORT", "x"}}));  // of something else
  const auto place = process_of(kRight);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->ranks, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->address, "node0");
  EXPECT_EQ(place->port, 29500);
}

TEST(LaunchVariables, EachOneMissingIsNamedInOneLine) {
  for (const auto& [name, value] : kRight) {
    Settings settings = kRight;
    settings.erase(name);
    const std::string words = words_of([&] { process_of(settings); });
    EXPECT_THAT(words, HasSubstr(name + " is not set"));
    EXPECT_THAT(words, Not(HasSubstr("\n")));
  }
}

TEST(LaunchVariables, EachMistakeIsNamedInOneLine) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {{"RANK", "4"},
                                                                     {"RANK", "-1"},
                                                                     {"RANK", "one"},
                                                                     {"RANK", "1 "},
                                                                     {"RANK", ""},
                                                                     {"WORLD_SIZE", "0"},
                                                                     {"WORLD_SIZE", "x"},
                                                                     {"WORLD_SIZE", "1e9"},
                                                                     {"LOCAL_RANK", "-2"},
                                                                     {"LOCAL_RANK", "9999999"},
                                                                     {"MASTER_PORT", "0"},
                                                                     {"MASTER_PORT", ""},
                                                                     {"MASTER_PORT", "65536"},
                                                                     {"MASTER_PORT", "a\nb"}};
  for (const auto& [name, value] : mistakes) {
    Settings settings = kRight;
    settings[name] = value;
    const std::string words = words_of([&] { process_of(settings); });
    EXPECT_THAT(words, HasSubstr(name + " is ")) << value;
    EXPECT_THAT(words, HasSubstr("a number from ")) << value;
    EXPECT_THAT(words, Not(HasSubstr("\n"))) << value;
  }
  Settings nowhere = kRight;
  nowhere["MASTER_ADDR"] = "";
  EXPECT_THAT(words_of([&] { process_of(nowhere); }), HasSubstr("MASTER_ADDR is empty"));
}

// The program itself, as a launcher starts it.
Outcome launched(std::vector<std::string> variables, const std::vector<std::string>& more = {}) {
  TemporaryFolder folder;
  variables.insert(variables.begin(), "env");
  std::vector<std::string> arguments{"train",          "--out", folder / "run",  "--set",
                                     "train.steps=20", "--set", "optim.warmup=4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Program program(arguments, "/", variables);
  return program.wait();
}

TEST(LaunchedProgram, OnTheCpuIsSentToMpirun) {
  const Outcome outcome =
      launched({"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("run.device = \"cpu\""), HasSubstr("mpirun -n 2")));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(LaunchedProgram, WithHalfOfTheVariablesSaysWhichIsMissing) {
  const Outcome outcome = launched({"RANK=0"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("lockstep: WORLD_SIZE is not set, and RANK is"));
}

TEST(LaunchedProgram, OfAnotherNumberThanTheLayoutIsRefused) {
  const Outcome outcome =
      launched({"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
               {"--set", "run.device=cuda", "--ranks", "4"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("WORLD_SIZE=2 for a layout of 4 ranks"));
}

// ---------------------------------------------------------------------------------------------------- worlds

int free_port() { return control::Coordinator({.token = control::Token::make()}).port(); }

class ProcessRanks : public ::testing::Test {
 protected:
  using Body = std::function<void(ProcessWorld&, Communicator& hosts, const TrainingRun::Connect&)>;
  struct How {
    int missing = -1;  // a rank that is not started
    double deadline = 10;
    int port = 0;           // 0: one that is free
    double first_late = 0;  // seconds by which rank 0 starts after the others
    double closing = 0;     // seconds that it takes to close the library
  };

  // Runs the body as each rank's; what each threw, in words.
  std::vector<std::string> run(int ranks, const Body& body, How how) {
    if (how.port == 0) how.port = free_port();
    std::vector<std::string> words(static_cast<std::size_t>(ranks));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != how.missing)
        threads.emplace_back([&, rank] {
          if (rank == 0) std::this_thread::sleep_for(std::chrono::duration<double>(how.first_late));
          words[static_cast<std::size_t>(rank)] = words_of([&] {
            ProcessWorld world({rank, ranks, rank, "127.0.0.1", how.port},
                               {.folder = folder_.path() / "run",
                                .deadline_seconds = how.deadline,
                                .device = Device::cpu,
                                .open = [&] { return std::make_unique<StandIn>(exchange_, how.closing); }});
            world.run([&](Communicator& hosts, const TrainingRun::Connect& connect) { body(world, hosts, connect); });
          });
        });
    threads.clear();  // joins
    return words;
  }
  std::vector<std::string> run(int ranks, const Body& body) { return run(ranks, body, How{}); }
  fs::path control() const { return folder_.path() / "run" / ".control"; }

  TemporaryFolder folder_;
  Exchange exchange_;
};

const std::vector<std::string> kWell(3);

TEST_F(ProcessRanks, MeetThroughAFileThatOnlyTheirUserReads) {
  std::atomic<int> seen = 0;
  const auto words = run(3, [&](ProcessWorld& world, Communicator& hosts, const auto&) {
    EXPECT_EQ(world.ranks_here(), 3);
    EXPECT_EQ(world.place_here(), world.rank());
    EXPECT_EQ(hosts.rank(), world.rank());
    std::int64_t sum = 1 << hosts.rank();
    sum_over(hosts, sum);
    EXPECT_EQ(sum, 7);
    std::string text = hosts.rank() == 0 ? "from rank 0, with more words than a word has bytes" : "";
    share_text(hosts, text, 0);
    EXPECT_THAT(text, EndsWith("has bytes"));
    struct stat status {};
    EXPECT_EQ(::stat(control().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    ++seen;
    hosts.barrier()->wait();
  });
  EXPECT_EQ(words, kWell);
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(fs::exists(control()));
}

// Before there is NCCL, over the control plane.
TEST_F(ProcessRanks, FindOutInWhatTheyDiffer) {
  const auto words = run(3, [&](ProcessWorld& world, auto&, const auto&) {
    const TextExchange exchange = [&](const std::string& mine) { return world.gather(mine); };
    EXPECT_EQ(exchange(std::to_string(world.rank())), (std::vector<std::string>{"0", "1", "2"}));
    EXPECT_EQ(find_disagreement({{"optim.lr", "0.1"}}, exchange), std::nullopt);
    EXPECT_EQ(find_disagreement({{"optim.lr", world.rank() == 1 ? "0.5" : "0.1"}}, exchange),
              "rank 1 has optim.lr = 0.5, ranks 0, 2 have 0.1");
  });
  EXPECT_EQ(words, kWell);
}

// Of a coordinator that is gone, or of another one.
TEST_F(ProcessRanks, WhatAKilledRunHasLeftIsOfNoHarm) {
  const control::Coordinator other({.token = control::Token::make()});
  for (const int port : {free_port(), other.port()})
    for (const char* token : {"the-token-of-another-run", "half-a-tok"}) {
      fs::create_directories(control().parent_path());
      std::ofstream(control()) << port << "\n" << token << "\n";
      EXPECT_EQ(run(3, [](auto&, Communicator& hosts, const auto&) { hosts.barrier()->wait(); }, {.first_late = 0.3}),
                kWell);
      EXPECT_FALSE(fs::exists(control()));
    }
}

// Launchers may meet at their port themselves.
TEST_F(ProcessRanks, MeetElsewhereWhereTheirPortIsTaken) {
  const control::Coordinator other({.token = control::Token::make()});
  EXPECT_EQ(run(3, [](auto&, Communicator& hosts, const auto&) { hosts.barrier()->wait(); }, {.port = other.port()}),
            kWell);
}

TEST_F(ProcessRanks, WithoutRankZeroSayWhatIsMissing) {
  const auto words = run(2, [](auto&, auto&, const auto&) {}, {.missing = 0, .deadline = 0.5});
  EXPECT_THAT(words[1], HasSubstr("rank 1 has found no "));
  EXPECT_THAT(words[1], HasSubstr(".control of rank 0 within 0.5 s; start rank 0"));
}

TEST_F(ProcessRanks, DoNotWaitTwiceAsLongForRankZero) {
  expect_ends_at(0.2, [&] {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(run(2, [](auto&, auto&, const auto&) {}, {.missing = 0, .deadline = 0.2})[1], "");
    return seconds_since(begin);
  });
}

TEST_F(ProcessRanks, ThatDoNotComeAreNamed) {
  const auto words = run(3, [](auto&, auto&, const auto&) {}, {.missing = 2, .deadline = 0.5});
  EXPECT_THAT(words[0], HasSubstr("rank 2 of 3 has not come within 0.5 s"));
  EXPECT_THAT(words[1], HasSubstr("rank 2 of 3 has not come within 0.5 s"));
  EXPECT_FALSE(fs::exists(control()));
}

TEST_F(ProcessRanks, OfWhichOneFailsAllTellItsWords) {
  // Its groups are gone a while before its words come.
  const auto words = run(3,
                         [](auto&, Communicator& hosts, const auto&) {
                           if (hosts.rank() == 1)
                             throw UserError(ExitCode::environment, "its disk is full", "empty it");
                           hosts.barrier()->wait();
                         },
                         {.closing = 0.2});
  EXPECT_THAT(words[1], HasSubstr("rank 1: its disk is full; empty it"));
  for (const int rank : {0, 2})
    EXPECT_THAT(words[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("rank 1 ("), HasSubstr("has failed: its disk is full")));
  EXPECT_FALSE(fs::exists(control()));
}

TEST_F(ProcessRanks, LateOrInAnotherCallAreNamed) {
  const auto late = run(2,
                        [](auto&, Communicator& hosts, const auto&) {
                          if (hosts.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                          hosts.barrier()->wait();
                        },
                        {.deadline = 0.5});
  EXPECT_THAT(late[0], AllOf(HasSubstr("barrier"), HasSubstr("rank 1 has not come")));
  const auto other = run(2, [](auto&, Communicator& hosts, const auto&) {
    std::int64_t value = 1;
    if (hosts.rank() == 1)
      hosts.barrier()->wait();
    else
      sum_over(hosts, value);
  });
  for (const std::string& words : other) EXPECT_THAT(words, AllOf(HasSubstr("barrier"), HasSubstr("all_reduce")));
}

TEST_F(ProcessRanks, AreNamedInTheGroupThatComputesToo) {
  const auto words = run(2,
                         [](auto&, Communicator& hosts, const TrainingRun::Connect& connect) {
                           CpuDevice device;
                           const auto replicas = connect(hosts, device.memory(), device.stream());
                           EXPECT_EQ(replicas->name(), "replicas");
                           Row x = row_of(DType::f32, 100, hosts.rank());
                           if (hosts.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                           replicas->all_reduce(x)->wait();
                         },
                         {.deadline = 0.5});
  EXPECT_THAT(words[0], AllOf(HasSubstr("#1 of 'replicas', all_reduce of 100 fp32"), HasSubstr("rank 1 has not come")));
}

// ---------------------------------------------------------------------------------------------------- training

RunSpec small_run(int ranks) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.vocabulary = 257;
  spec.data.example = true;
  spec.data.seq = 16;
  spec.train.global_batch = 6;
  spec.layout.dp = ranks;
  spec.run.threads = 1;
  spec.train.async_save = true;
  spec.train.save_last = true;
  return spec;
}

// The losses of some steps, and a checkpoint behind them.
std::vector<double> train_here(const RunSpec& spec, const fs::path& folder, Communicator& ranks,
                               const TrainingRun::Connect& connect) {
  TrainingRun run(spec, Device::cpu, folder, {.ranks = &ranks, .connect = connect, .threads = 1});
  run.init_weights();
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(run.step(step * 6, 1e-2).loss);
  run.save({.step = 3, .updates = 3, .samples = 18, .run_file = "a run"});
  run.wait_for_save();
  return losses;
}

TEST_F(ProcessRanks, TrainWithTheBitsOfThreadsAndSaveTogether) {
  const RunSpec spec = small_run(3);
  std::vector<double> want;
  each_rank(3, [&](Communicator& ranks) {
    const auto losses = train_here(spec, folder_.path() / "threads", ranks, {});
    if (ranks.rank() == 0) want = losses;
  });
  ASSERT_EQ(want.size(), 3u);
  std::array<std::vector<double>, 3> got;
  const auto words = run(3, [&](auto&, Communicator& hosts, const TrainingRun::Connect& connect) {
    got[static_cast<std::size_t>(hosts.rank())] = train_here(spec, folder_.path() / "processes", hosts, connect);
  });
  EXPECT_EQ(words, kWell);
  for (const auto& losses : got) EXPECT_EQ(losses, want);
  EXPECT_TRUE(fs::exists(folder_.path() / "processes" / "step-00000003")) << "no checkpoint";
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// Whoever may read a run's folder, its output or the list of processes does not learn the token.
TEST_F(ProcessRanks, KeepTheTokenInTheirFileAlone) {
  const fs::path here = folder_.path() / "run";
  std::string token;
  std::vector<fs::path> searched;
  const auto search = [&] {
    for (const auto& entry : fs::recursive_directory_iterator(here))
      if (entry.is_regular_file() && entry.path() != control()) {
        searched.push_back(entry.path());
        EXPECT_EQ(text_of(entry.path()).find(token), std::string::npos) << entry.path();
      }
    for (const char* of_process : {"/proc/self/cmdline", "/proc/self/environ"})
      EXPECT_EQ(text_of(of_process).find(token), std::string::npos) << of_process;
  };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto words = run(2, [&](ProcessWorld& world, Communicator& hosts, const TrainingRun::Connect& connect) {
    train_here(small_run(2), here, hosts, connect);
    if (hosts.rank() == 0) {
      int port = 0;
      std::ifstream(control()) >> port >> token;
      std::string why_not;
      EXPECT_THAT(words_of([&] {  // whom rank 0 refuses, it tells of
                    control::connect_secured("127.0.0.1", port, control::Token("the-token-of-another-run"),
                                             control::Clock::now() + control::seconds(5), why_not);
                  }),
                  HasSubstr("refuses"));
      search();
    }
    hosts.barrier()->wait();
    if (world.rank() == 1) throw UserError(ExitCode::environment, "its disk is full", "empty it");
    hosts.barrier()->wait();
  });
  const std::string out = ::testing::internal::GetCapturedStdout(), err = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(token.size(), 64u);
  EXPECT_GT(searched.size(), 2u) << "no checkpoint was searched";
  search();  // and after it
  EXPECT_THAT(err, HasSubstr("a connection from 127.0.0.1 was refused"));
  for (const std::string& text : {out, err, words[0], words[1]}) EXPECT_EQ(text.find(token), std::string::npos) << text;
}

// A group that is well until it is asked.
class FailsWhenAsked final : public Communicator {
 public:
  explicit FailsWhenAsked(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()), inner_(std::move(inner)) {}
  Started start(const Message& message) override { return inner_->start(message); }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return inner_->split(place, name);
  }
  void check() override { throw CommError("the sums have failed"); }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST(AStepOfAFailedGroup, IsNotReported) {
  TemporaryFolder folder;
  RunSpec spec = small_run(2);
  spec.train.save_last = false;
  const TrainingRun::Connect connect = [](Communicator& hosts, Memory&, Stream&) {
    return std::make_unique<FailsWhenAsked>(hosts.split([](int rank) { return Place{0, rank}; }, "replicas"));
  };
  each_rank(2, [&](Communicator& ranks) {
    TrainingRun run(spec, Device::cpu, folder.path(), {.ranks = &ranks, .connect = connect, .threads = 1});
    run.init_weights();
    EXPECT_EQ(words_of([&] { run.step(0, 1e-2); }), "the sums have failed");
    ranks.barrier()->wait();
    TrainingRun other(spec, Device::cpu, folder.path(), {.ranks = &ranks, .connect = connect, .threads = 1});
    other.init_weights();
    EXPECT_EQ(words_of([&] { other.compute_gradients(0, 1e-2); }), "the sums have failed");
    ranks.barrier()->wait();
    EXPECT_EQ(words_of([&] { other.evaluate(); }), "the sums have failed");
    ranks.barrier()->wait();
  });
}

}  // namespace
}  // namespace lockstep::tests
