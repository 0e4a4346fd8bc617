#include "process_ranks/processes.h"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::tests {

namespace {

struct Run {
  processes::World& ranks;
  const ProcessOptions& options;
  std::unique_ptr<Communicator> world;
};
Run* run_of_this_process = nullptr;  // tests of GoogleTest are given nothing

class FailuresOnly final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestStart(const ::testing::TestInfo& info) override {
    test_ = std::string(info.test_suite_name()) + '.' + info.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream words;
    words << "rank " << rank_ << ": " << test_ << ": " << (result.file_name() ? result.file_name() : "") << ':'
          << result.line_number() << ": " << result.message() << '\n';
    std::fputs(words.str().c_str(), stderr);
  }

 private:
  int rank_;
  std::string test_;
};

}  // namespace

std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i)
    if (const std::string a = argv[i]; a.starts_with(name + "=")) return a.substr(name.size() + 1);
  return "";
}

ProcessOptions options_of(int argc, char** argv, const std::string& rank) {
  ProcessOptions options;
  std::istringstream hosts(argument(argc, argv, "--hosts"));
  for (std::string host; std::getline(hosts, host, ',');) options.hosts.push_back(std::stoi(host));
  if (const std::string slot = argument(argc, argv, "--slot"); !slot.empty()) options.slot_bytes = std::stoll(slot);
  if (const std::string d = argument(argc, argv, "--deadline"); !d.empty()) options.deadline_seconds = std::stod(d);
  if (const std::string s = argument(argc, argv, "--least_start"); !s.empty())
    options.least_start_seconds = std::stod(s);
  if (const std::string l = argument(argc, argv, "--least_seen"); !l.empty()) options.least_seen = std::stoll(l);
  options.see_tensors = rank.empty() || argument(argc, argv, "--blind") != rank;
  return options;
}

Communicator& Processes::world() { return *run_of_this_process->world; }
processes::World& Processes::ranks() { return run_of_this_process->ranks; }
const ProcessOptions& Processes::options() { return run_of_this_process->options; }

int run_tests(int argc, char** argv, processes::World& world, const ProcessOptions& options) {
  Run run{world, options, world.communicator()};
  run_of_this_process = &run;
  // Drills start worlds of their own; the other counts ranks in a variable that only threads share.
  auto& filter = ::testing::GTEST_FLAG(filter);
  filter +=
      std::string(filter.find('-') == std::string::npos ? "-" : ":") + "Drill*:InFlight.ARankThatComputesHoldsNobodyUp";
  std::unique_ptr<SharedRows> shared;
  std::istringstream sharing(argument(argc, argv, "--shared"));
  for (std::string rank; std::getline(sharing, rank, ',');)
    if (std::stoi(rank) == world.rank()) shared = std::make_unique<SharedRows>(*run.world);
  if (world.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(world.rank()));
  }
  const int result = RUN_ALL_TESTS();
  shared.reset();
  run.world.reset();
  return result;
}

}  // namespace lockstep::tests
