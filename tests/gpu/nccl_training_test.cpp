// `lockstep train` as processes that a launcher starts, with NCCL between them: on one GPU, which they share.
//
// NCCL refuses two ranks of one machine on one GPU, so each process says that it is another machine (NCCL_HOSTID), and
// they talk over the loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "comm/control/coordinator.h"
#include "support/program.h"
#include "support/run_results.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const char* const kSmall = R"(
[model]
family = "llama"
vocabulary = 64
layers = 2
width = 64
heads = 4
ffn_width = 96
max_positions = 32
[data]
seq = 32
[data.synthetic]
vocabulary = 64
order = 1
[train]
steps = 6
global_batch = 8
eval_every = 3
save_every = 3
[optim]
warmup = 0
[precision]
compute = "fp32"
[run]
device = "cuda"
deadline = 10
)";

class NcclTraining : public ::testing::Test {
 protected:
  NcclTraining() { std::ofstream(folder_ / "small.toml") << kSmall; }
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    if (!control::has_encryption()) GTEST_SKIP() << "not run: a build without libsodium, whose ranks cannot meet";
  }

  std::vector<std::string> command(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"train", folder_ / "small.toml", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::unique_ptr<Program> launch(const std::vector<std::string>& command, int rank, int ranks, int port) const {
    return std::make_unique<Program>(
        command, "/",
        std::vector<std::string>{"env", fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                                 "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port),
                                 fmt::format("NCCL_HOSTID=lockstep-{}", rank), "NCCL_SOCKET_IFNAME=lo",
                                 "NCCL_NET=Socket"});
  }
  static int free_port() { return control::Coordinator({.token = control::Token::make()}).port(); }

  std::vector<double> losses(const std::string& out) const { return losses_in(folder_ / out); }

  void expect_trained(const std::string& out, int ranks, const std::vector<std::string>& more = {}) const {
    const int port = free_port();
    std::vector<std::unique_ptr<Program>> processes;
    for (int rank = 0; rank < ranks; ++rank) processes.push_back(launch(command(out, more), rank, ranks, port));
    for (int rank = 0; rank < ranks; ++rank) {
      const Outcome outcome = processes[static_cast<std::size_t>(rank)]->wait();
      EXPECT_EQ(outcome.code, 0) << "rank " << rank << ": " << outcome.err;
    }
    EXPECT_FALSE(fs::exists(folder_ / (out + "/.control")));
  }
  TemporaryFolder folder_;
};

TEST_F(NcclTraining, LearnsWhatOneRankLearnsWithTheBitsOfThreads) {
  ASSERT_EQ(run_program(command("one")).code, 0);
  const std::vector<double> one = losses("one");
  ASSERT_EQ(one.size(), 8u);
  ASSERT_EQ(run_program(command("threads", {"--ranks", "2"})).code, 0);
  expect_trained("processes", 2);
  const std::vector<double> two = losses("processes");
  EXPECT_EQ(two, losses("threads"));  // sums are canonical
  ASSERT_EQ(two.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
}

TEST_F(NcclTraining, CentralLearnsTheSame) {
  ASSERT_EQ(run_program(command("one")).code, 0);
  expect_trained("central", 2, {"--set", "layout.dp_kind=central"});
  const std::vector<double> one = losses("one"), two = losses("central");
  ASSERT_EQ(two.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
}

TEST_F(NcclTraining, EveryStageOfZeroLearnsTheBitsOfThreads) {
  for (const std::string layout : {"dp=2,zero=1", "dp=3,zero=2,uneven=on", "dp=2,zero=3", "dp=4,zero=3,shard=2"}) {
    const std::vector<std::string> more{"--layout", layout};
    ASSERT_EQ(run_program(command("threads" + layout, more)).code, 0) << layout;
    expect_trained("processes" + layout, layout[3] - '0', more);
    EXPECT_EQ(losses("processes" + layout), losses("threads" + layout)) << layout;
    EXPECT_EQ(losses("processes" + layout).size(), 8u);
  }
}

// Layers and samples cut between two and four ranks: the bits of threads, and to rounding what one rank learns.
TEST_F(NcclTraining, CutLayersAndSamplesLearnTheBitsOfThreads) {
  ASSERT_EQ(run_program(command("one")).code, 0);
  const std::vector<double> one = losses("one");
  for (const auto& [layout, ranks] : {std::pair<std::string, int>{"tp=2", 2},
                                      {"tp=2,sp=off", 2},
                                      {"tp=4", 4},
                                      {"dp=2,tp=2,zero=3", 4},
                                      {"cp=2", 2},
                                      {"cp=4", 4},
                                      {"cp=4,cp_order=plain,overlap=off", 4},
                                      {"cp=4,cp_kind=ulysses", 4},
                                      {"cp=4,cp_kind=2x2", 4},
                                      {"cp=2,tp=2", 4},
                                      {"dp=2,cp=2,zero=3", 4},
                                      {"pp=2,cp=2,micro=2", 4},
                                      {"pp=2,micro=1", 2}}) {  // a receive is posted before what it depends on
    const std::vector<std::string> more{"--layout", layout};
    ASSERT_EQ(run_program(command("threads" + layout, more)).code, 0) << layout;
    expect_trained("processes" + layout, ranks, more);
    const std::vector<double> cut = losses("processes" + layout);
    EXPECT_EQ(cut, losses("threads" + layout)) << layout;
    ASSERT_EQ(cut.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(cut[i], one[i], 1e-5 * one[i]) << layout << ", " << i;
  }
}

TEST_F(NcclTraining, StagesLearnTheBitsOfThreadsAndOfOneRank) {
  const std::vector<std::string> four{"--layout", "micro=4"};
  ASSERT_EQ(run_program(command("one", four)).code, 0);
  for (const auto& [layout, ranks] : {std::pair<std::string, int>{"pp=2,micro=4", 2},
                                      {"pp=4,micro=4,schedule=zb-h1", 4},
                                      {"pp=2,micro=4,schedule=zb-v", 2},
                                      {"dp=2,pp=2,micro=2,zero=3,schedule=interleaved", 4}}) {
    const std::vector<std::string> more{"--layout", layout};
    ASSERT_EQ(run_program(command("threads" + layout, more)).code, 0) << layout;
    expect_trained("processes" + layout, ranks, more);
    EXPECT_EQ(losses("processes" + layout), losses("threads" + layout)) << layout;
    if (layout.starts_with("pp")) {
      EXPECT_EQ(losses("processes" + layout), losses("one")) << layout;
    }
  }
}

// What changes the numbers on purpose, and sends in ways of its own.
struct NcclTechnique {
  std::string name, layout;
  int ranks;
  std::vector<std::string> sets;
};

class NcclTechniques : public NcclTraining, public ::testing::WithParamInterface<NcclTechnique> {};

TEST_P(NcclTechniques, EachTechniqueLearnsTheBitsOfThreads) {
  std::vector<std::string> more{"--layout", GetParam().layout, "--set", "model.tied=false"};
  for (const std::string& set : GetParam().sets) more.insert(more.end(), {"--set", set});
  const Outcome outcome = run_program(command("threads", more));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  // Whose gradient comes when is recorded, and repeated.
  if (GetParam().name == "async")
    more.insert(more.end(), {"--set", "sync.replay=" + (folder_ / "threads/arrivals.jsonl")});
  expect_trained("processes", GetParam().ranks, more);
  EXPECT_EQ(losses("processes"), losses("threads"));
  EXPECT_EQ(losses("processes").size(), 8u);
}

INSTANTIATE_TEST_SUITE_P(
    All, NcclTechniques,
    ::testing::Values(
        NcclTechnique{"int8", "dp=3,uneven=on", 3, {"sync.compress=int8"}},
        NcclTechnique{"topk", "dp=2,zero=1", 2, {"sync.compress=topk:0.1"}},
        NcclTechnique{"weights", "dp=2,zero=3", 2, {"sync.compress_weights=int8"}},
        NcclTechnique{"activations", "pp=2,micro=4", 2, {"sync.compress_activations=int8"}},
        NcclTechnique{"largest_activations", "pp=2,micro=2", 2, {"sync.compress_activations=topk:0.3"}},
        NcclTechnique{"rows", "dp=2,embedding_gradient=rows", 2, {}},
        NcclTechnique{"local_steps", "dp=2", 2, {"sync.kind=partial", "sync.every=3", "sync.outer=nesterov"}},
        NcclTechnique{"servers", "dp=2,dp_kind=server,servers=1", 3, {}},
        NcclTechnique{"async", "dp=2,dp_kind=server,servers=1", 3, {"sync.kind=async", "sync.staleness=2"}},
        NcclTechnique{"pipedream", "pp=2,micro=4,schedule=pipedream", 2, {}},
        NcclTechnique{"masks", "dp=2,zero=1", 2, {"sparsity.kind=2:4", "sparsity.end=4", "sparsity.every=2"}}),
    [](const auto& info) { return info.param.name; });

// Saved by two processes, gone on with by two others, and by one alone.
TEST_F(NcclTraining, GoesOnFromWhatItSaved) {
  const std::vector<std::string> constant{"--set", "optim.schedule=constant"};
  expect_trained("unbroken", 2, constant);
  expect_trained("moved", 2, {"--set", "optim.schedule=constant", "--set", "train.steps=3"});
  expect_trained("moved", 2, {"--set", "optim.schedule=constant", "--resume"});
  const std::vector<double> moved = losses("moved"), unbroken = losses("unbroken");
  ASSERT_FALSE(moved.empty());
  EXPECT_EQ(moved.back(), unbroken.back());
  EXPECT_EQ(run_program(command("moved", {"--resume", "--set", "train.steps=7"})).code, 0);
}

TEST_F(NcclTraining, AKilledRankIsNamedByTheOtherWithinTheDeadline) {
  const int port = free_port();
  const auto all = command("lost", {"--set", "train.steps=1000000", "--set", "train.save_every=0"});
  const auto first = launch(all, 0, 2, port), second = launch(all, 1, 2, port);
  first->wait_for_output("step");
  second->signal(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = first->wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 ("));
  EXPECT_LT(seconds, 10 + 5) << "the deadline, and leaving";
  fmt::print("a killed rank was named after {:.1f} s: {}", seconds, outcome.err);
}

}  // namespace
}  // namespace lockstep::tests
