// test_mpi: under mpirun, the tests over processes; by itself, the drills, for which it starts mpirun.
//
// Rank 0 prints as usual; the others print their failures alone, "rank 3: " before them. A failure of any rank makes
// mpirun's exit status non-zero.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "mpi/processes.h"

namespace lockstep::tests {

namespace {

struct Run {
  MpiOptions options;
  std::unique_ptr<MpiWorld> mpi;
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

std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i)
    if (const std::string a = argv[i]; a.rfind(name + "=", 0) == 0) return a.substr(name.size() + 1);
  return "";
}

}  // namespace

MpiOptions options_of(int argc, char** argv) {
  MpiOptions options;
  std::istringstream hosts(argument(argc, argv, "--hosts"));
  for (std::string host; std::getline(hosts, host, ',');) options.hosts.push_back(std::stoi(host));
  if (const std::string slot = argument(argc, argv, "--slot"); !slot.empty()) options.slot_bytes = std::stoll(slot);
  if (const std::string d = argument(argc, argv, "--deadline"); !d.empty()) options.deadline_seconds = std::stod(d);
  if (const std::string s = argument(argc, argv, "--least_start"); !s.empty())
    options.least_start_seconds = std::stod(s);
  if (const std::string l = argument(argc, argv, "--least_seen"); !l.empty()) options.least_seen = std::stoll(l);
  if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK"))
    options.see_tensors = argument(argc, argv, "--blind") != rank;
  return options;
}

Communicator& Processes::world() { return *run_of_this_process->world; }
MpiWorld& Processes::mpi() { return *run_of_this_process->mpi; }
const MpiOptions& Processes::options() { return run_of_this_process->options; }

}  // namespace lockstep::tests

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::tests;
  ::testing::InitGoogleTest(&argc, argv);
  auto& filter = ::testing::GTEST_FLAG(filter);
  if (!MpiWorld::launched()) {
    if (filter == "*") filter = "Drill*";
    return RUN_ALL_TESTS();
  }
  MpiOptions options = options_of(argc, argv);
  if (const std::string drill = argument(argc, argv, "--drill"); !drill.empty())
    return run_drill(drill, argument(argc, argv, "--report"), options);
  // Drills start worlds of their own; the other counts ranks in a variable that only threads share.
  filter +=
      std::string(filter.find('-') == std::string::npos ? "-" : ":") + "Drill*:InFlight.ARankThatComputesHoldsNobodyUp";
  Run run{options, std::make_unique<MpiWorld>(options), nullptr};
  run.world = run.mpi->communicator();
  run_of_this_process = &run;
  // --shared=0,2: rows of these ranks lie where the others can see them.
  std::unique_ptr<SharedRows> shared;
  std::istringstream sharing(argument(argc, argv, "--shared"));
  for (std::string rank; std::getline(sharing, rank, ',');)
    if (std::stoi(rank) == run.mpi->rank()) shared = std::make_unique<SharedRows>(*run.world);
  if (const int rank = run.mpi->rank(); rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  const int result = RUN_ALL_TESTS();
  shared.reset();
  run.world.reset();
  return result;
}
