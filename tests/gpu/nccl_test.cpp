// NCCL between processes that share one GPU: this program runs itself once for each rank.
//
// NCCL refuses two ranks of one machine on one GPU, so each process says that it is another machine (NCCL_HOSTID), and
// they talk over the loopback. What a rank has to do is in LOCKSTEP_NCCL_TEST; what it finds wrong, it prints.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "comm/nccl/communicator.h"
#include "gpu/comm_order.h"
#include "support/every_op.h"
#include "support/program.h"

extern char** environ;

namespace lockstep::tests {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr double kDeadline = 5;

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// Until the file is there; false after so many seconds.
bool comes(const std::string& file, double seconds = 60) {
  const auto end = SteadyClock::now() + std::chrono::duration<double>(seconds);
  while (!std::filesystem::exists(file)) {
    if (SteadyClock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void put(const std::string& file, const std::string& text) {
  std::ofstream(file + ".part", std::ios::binary) << text;
  std::filesystem::rename(file + ".part", file);
}

// ---------------------------------------------------------------------------------------------------- a rank

struct NcclRank {
  Communicator& comm;
  GpuRank& gpu;
  std::string folder;
};

// Fewer than all: a message between processes that take turns on a GPU costs milliseconds.
std::vector<Trial> trials_over_nccl(int ranks) {
  std::vector<Trial> some;
  for (const Trial& t :
       every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1003})) {
    const bool usual = t.how.algorithm == Algorithm::canonical || t.how.algorithm == Algorithm::native;
    const bool plain_call = !t.uneven && !t.in_place;
    if (!usual && (t.dtype != DType::f32 || t.how.reduction != Reduction::sum || t.n == 0)) continue;
    if (reduces(t.op) && t.how.reduction != Reduction::sum && !plain_call) continue;
    if (t.n == 0 && t.dtype != DType::bf16) continue;
    some.push_back(t);
  }
  return some;
}

void every_operation(const NcclRank& here) {
  const int rank = here.comm.rank(), ranks = here.comm.size();
  const auto trials = trials_over_nccl(ranks);
  const auto want = references(trials, ranks);
  const auto begin = SteadyClock::now();
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const TrialBuffers got = run_trial(trials[i], here.comm, here.gpu.memory(), here.gpu.stream());
    ASSERT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(rank)]), "");
  }
  fmt::print("{} operations in {:.1f} s\n", trials.size(),
             std::chrono::duration<double>(SteadyClock::now() - begin).count());
}

void order(const NcclRank& here) {
  expect_order_with_compute(here.comm, here.gpu);
  expect_beside_compute(here.comm, here.gpu);
  expect_many_in_flight(here.comm, here.gpu);
}

// Both send before either receives, a receive is posted long before its send, and groups are split.
void messages_and_groups(const NcclRank& here) {
  Communicator& comm = here.comm;
  GpuRank& gpu = here.gpu;
  constexpr std::int64_t n = 8 << 20;  // more than NCCL keeps in its own buffers
  const int next = (comm.rank() + 1) % comm.size(), last = (comm.rank() + comm.size() - 1) % comm.size();
  const Tensor mine = gpu.take(DType::f32, n), came = gpu.take(DType::f32, n), late = gpu.take(DType::f32, 1000);
  fill({.y = mine, .value = comm.rank() + 1.0}, gpu.stream());
  const auto round = [&](const Tensor& in, const Tensor& out, int to, int from) {
    const auto sent = comm.send(in, to), received = comm.recv(out, from);
    sent->wait();
    received->wait();
  };
  round(mine.slice(0, 0, 1), came.slice(0, 0, 1), next, last);  // connect
  round(mine.slice(0, 0, 1), came.slice(0, 0, 1), last, next);
  gpu.stream().synchronize();
  fill({.y = came, .value = NAN}, gpu.stream());
  const bool early = comm.size() > 2;  // of two, the neighbour's first message would be the one that is posted for
  const Tensor sum = gpu.take(DType::f32, 10);
  std::vector<Tensor>
      zeros;  // of types that this process has not summed before: their kernels are not to be loaded now
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64}) {
    zeros.push_back(gpu.take(dtype, 10));
    upload(zeros.back(), std::vector<char>(static_cast<std::size_t>(zeros.back().bytes())).data(), gpu.stream());
  }
  const auto posted = early && comm.rank() == 0 ? comm.recv(late, 1) : nullptr;
  round(mine, came, next, last);
  expect_all(came, last + 1.0, gpu.stream(), "from the neighbour");
  fill({.y = sum, .value = 1}, gpu.stream());
  comm.all_reduce(sum)->wait();
  expect_all(sum, comm.size(), gpu.stream(), "the sum beside a receive that waits");
  for (const Tensor& zero : zeros) comm.all_reduce(zero)->wait();
  gpu.stream().synchronize();
  if (early && comm.rank() == 1) comm.send(mine.slice(0, 0, 1000), 0)->wait();
  if (posted) {
    posted->wait();
    expect_all(late, 2, gpu.stream(), "the late one");
  }
  const auto pairs = comm.split([](int r) { return Place{r / 2, -r}; }, "pairs");
  const auto some = comm.split([](int r) { return Place{r == 0 ? -1 : 0, r}; }, "some");
  EXPECT_EQ(some == nullptr, comm.rank() == 0);
  fill({.y = sum, .value = comm.rank() + 1.0}, gpu.stream());
  pairs->all_reduce(sum)->wait();
  const int first = comm.rank() / 2 * 2;
  expect_all(sum, pairs->size() == 2 ? 2 * first + 3.0 : first + 1.0, gpu.stream(), "the pair's sum");
  EXPECT_EQ(gpu.ledger().rows().at({Tag::communication, "pairs"}).current, nccl::staging_bytes(pairs->size(), {}));
  comm.barrier()->wait();
}

// Rank 1 is gone, or does not come: the others' streams go on within the deadline, and they say what they waited for.
void without_rank_1(const NcclRank& here, bool killed) {
  Communicator& comm = here.comm;
  GpuRank& gpu = here.gpu;
  const Tensor x = gpu.take(DType::f32, 1000003);
  fill({.y = x, .value = 1}, gpu.stream());
  comm.all_reduce(x)->wait();
  expect_all(x, comm.size(), gpu.stream(), "while all are there");
  if (comm.rank() == 1) {
    if (killed) ::raise(SIGKILL);
    for (int rank = 0; rank < comm.size(); ++rank)
      if (rank != 1) {
        EXPECT_TRUE(comes(here.folder + "/failed." + std::to_string(rank))) << rank;
      }
    return;
  }
  if (killed) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto begin = SteadyClock::now();
  std::string words;
  try {
    const auto pending = comm.all_reduce(x);
    pending->wait();
    gpu.stream().synchronize();
    pending->wait();
  } catch (const CommError& error) {
    words = error.what();
  }
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  fmt::print("after {:.2f} s: {}\n", seconds, words);
  EXPECT_LT(seconds, kDeadline + 2);
  EXPECT_NE(words.find("all_reduce of 1000003 fp32"), std::string::npos) << words;
  put(here.folder + "/failed." + std::to_string(comm.rank()), words);
  for (int rank = 0; rank < comm.size(); ++rank)  // none leaves before all have seen it
    if (rank != 1) comes(here.folder + "/failed." + std::to_string(rank), 10);
}

// Not a test by itself: what a rank's process runs.
TEST(NcclRankProcess, DISABLED_Runs) {
  const char* what = std::getenv("LOCKSTEP_NCCL_TEST");
  ASSERT_TRUE(what) << "run by the tests of Nccl";
  const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
  const std::string folder = std::getenv("LOCKSTEP_NCCL_FOLDER"), id_file = folder + "/id", task = what;
  EXPECT_EQ(nccl::choose_gpu(0), 0);
  GpuRank gpu(kOrderArena);
  const auto library = nccl::open_library();
  const nccl::Share share = [&](std::span<const char> mine) {
    if (rank == 0) put(id_file, std::string(mine.begin(), mine.end()));
    if (!comes(id_file)) throw EnvironmentError("rank 0 has given no id");
    const std::string text = text_of(id_file);
    return std::vector<char>(text.begin(), text.end());
  };
  nccl::Options options{.deadline_seconds = task == "killed" || task == "absent" ? kDeadline : 60};
  if (task == "operations") options.staging_bytes = 4096;  // so that sums go in several chunks
  const auto comm = nccl::make_communicator(*library, {rank, ranks}, share, gpu.memory(), gpu.stream(), options);
  const NcclRank here{*comm, gpu, folder};
  if (task == "operations")
    every_operation(here);
  else if (task == "order")
    order(here);
  else if (task == "messages")
    messages_and_groups(here);
  else
    without_rank_1(here, task == "killed");
}

// ---------------------------------------------------------------------------------------------------- the tests

class Nccl : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }

  // Runs this program as so many ranks; each must end well, but one that is `lost`.
  static void expect_ranks(const std::string& task, int ranks, int lost = -1) {
    const TemporaryFolder folder;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) processes.push_back(spawn(task, rank, ranks, folder.path().string()));
    const auto end = SteadyClock::now() + std::chrono::seconds(75);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t process = processes[static_cast<std::size_t>(rank)];
      int status = 0;
      while (waitpid(process, &status, WNOHANG) == 0) {
        if (SteadyClock::now() >= end) kill(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const std::string said = text_of(folder / ("out." + std::to_string(rank)));
      const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      EXPECT_EQ(well, rank != lost) << task << " of " << ranks << ", rank " << rank << ", status " << status << ":\n"
                                    << said;
      for (const char* mark : {" operations in ", "after "})
        if (const auto at = said.find(mark); well && at != std::string::npos) {
          const auto line = said.rfind('\n', at) + 1;
          fmt::print("{} of {}, rank {}: {}\n", task, ranks, rank, said.substr(line, said.find('\n', at) - line));
        }
    }
  }

 private:
  static pid_t spawn(const std::string& task, int rank, int ranks, const std::string& folder) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::vector<std::string> words = {program, "--gtest_filter=NcclRankProcess.DISABLED_Runs",
                                      "--gtest_also_run_disabled_tests"};
    std::vector<std::string> settings = {"LOCKSTEP_NCCL_TEST=" + task,
                                         "LOCKSTEP_NCCL_FOLDER=" + folder,
                                         fmt::format("RANK={}", rank),
                                         fmt::format("WORLD_SIZE={}", ranks),
                                         fmt::format("NCCL_HOSTID=lockstep-{}", rank),
                                         "NCCL_SOCKET_IFNAME=lo",
                                         "NCCL_NET=Socket",
                                         "NCCL_DEBUG=WARN"};
    for (char** setting = environ; *setting; ++setting)
      if (std::string_view(*setting).substr(0, 5) != "GTEST" && std::string_view(*setting).substr(0, 5) != "NCCL_")
        settings.push_back(*setting);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, (folder + "/out." + std::to_string(rank)).c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t process = -1;
    const int failed =
        posix_spawn(&process, program.c_str(), &files, nullptr, pointers(words).data(), pointers(settings).data());
    posix_spawn_file_actions_destroy(&files);
    if (failed) throw std::runtime_error("posix_spawn failed");
    return process;
  }
};

TEST_P(Nccl, EveryOperationGivesTheCpusBits) { expect_ranks("operations", GetParam()); }
TEST_P(Nccl, MessagesAndGroupsKeepTheContract) { expect_ranks("messages", GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, ::testing::Values(2, 3, 4));

class NcclOnce : public Nccl {};
TEST_P(NcclOnce, OperationsAndComputeKeepTheirOrder) { expect_ranks("order", GetParam()); }
TEST_P(NcclOnce, AKilledRankFailsTheOthersWithinTheDeadline) { expect_ranks("killed", GetParam(), 1); }
TEST_P(NcclOnce, ARankThatDoesNotComeFailsTheOthersWithinTheDeadline) { expect_ranks("absent", GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnce, ::testing::Values(3));

TEST(NcclChoice, AGpuThatIsNotThereIsRefusedWithARemedy) {
  try {
    nccl::choose_gpu(1000);
    FAIL() << "GPU 1000";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("start no more ranks"), std::string::npos) << error.what();
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("without CUDA"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::tests
