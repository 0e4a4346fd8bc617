// What a process holds follows what was planned, under every lever: within a tenth and 64 MiB. And the limit of a
// memory cgroup is what a run has to fit into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/control_group.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/sanitizer.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::int64_t kMebibyte = 1 << 20;

// Few tokens and a small vocabulary, so that nearly all memory is that of states.
std::string state_heavy_run(int layers) {
  return fmt::format(R"(
[model]
family = "llama"
vocabulary = 256
layers = {}
width = 768
heads = 8
kv_heads = 8
ffn_width = 2048
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 256
order = 1
[train]
steps = 1
global_batch = 4
save_last = false
[optim]
warmup = 0
[run]
threads = 2
[precision]
compute = "bf16"
gradients = "bf16"
)",
                     layers);
}

class ResidentMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kUnderSanitizer) GTEST_SKIP() << "a sanitizer's own memory is resident too";
    std::ofstream(folder_ / "run.toml") << state_heavy_run(6);
  }
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> all{name, folder_ / "run.toml"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> train(std::vector<std::string> more) const {
    more.insert(more.end(), {"--overwrite", "--out", folder_ / "run"});
    return command("train", more);
  }
  nlohmann::json plan(std::vector<std::string> more) const {
    more.emplace_back("--json");
    const Outcome o = run_program(command("plan", more));
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out);
  }
  TemporaryFolder folder_;
};

const std::vector<std::string> kStateOnDisk{"--set", "memory.offload_optimizer=disk", "--set",
                                            "memory.offload_window=4"};

TEST_F(ResidentMemory, FollowsThePlanUnderEveryLever) {
  struct Case {
    std::int64_t ranks;
    std::vector<std::string> more;
  };
  const std::vector<Case> cases{
      {1, {}},
      {1, kStateOnDisk},
      {1, {"--set", "memory.offload_optimizer=disk", "--set", "memory.offload_share=0.5"}},
      {1, {"--set", "precision.moments=bf16", "--set", "precision.master=bf16"}},
      {1, {"--set", "data.seq=32", "--set", "train.global_batch=64"}},
      {1, {"--set", "data.seq=32", "--set", "train.global_batch=64", "--set", "memory.recompute=full"}},
      {1, {"--set", "data.seq=32", "--set", "train.global_batch=64", "--set", "layout.micro=8"}},
      {2, {"--layout", "dp=2,zero=3"}},
      {2, {"--layout", "dp=2,zero=1", "--set", "memory.offload_optimizer=disk"}}};
  std::int64_t most = 0, least = 0;
  for (const Case& c : cases) {
    const std::string words = fmt::format("{}", fmt::join(c.more, " "));
    const Outcome o = run_program(train(c.more));
    ASSERT_EQ(o.code, 0) << words << o.err;
    const std::int64_t planned = plan(c.more)["peak_bytes"].get<std::int64_t>() * c.ranks;
    EXPECT_LE(o.resident_bytes, planned * 11 / 10 + 64 * kMebibyte) << words;
    EXPECT_GE(o.resident_bytes, planned * 9 / 10 - 64 * kMebibyte) << words;
    most = std::max(most, planned);
    least = least == 0 ? planned : std::min(least, planned);
  }
  EXPECT_GT(most, least + 300 * kMebibyte) << "or the bounds say nothing";
}

Outcome run_in(const ControlGroup& group, const std::vector<std::string>& arguments) {
  const std::string enter = "echo $$ >'" + group.processes_file() + "' && exec \"$0\" \"$@\"";
  return Program(arguments, "/", {"sh", "-c", enter}).wait();
}

// Weights and gradients of 2 bytes stay, masters and moments of 12 go: 16 bytes of states per parameter in the room of
// less than 6.
TEST_F(ResidentMemory, OfStatesLargerThanACgroupAllowsIsHeldToItByOffload) {
  std::ofstream(folder_ / "run.toml") << state_heavy_run(12);
  const nlohmann::json whole = plan({}), offloaded = plan(kStateOnDisk);
  std::int64_t states = 0;
  for (const char* tag : {"parameter", "gradient", "optimizer"})
    states += whole["tags"][tag]["peak"].get<std::int64_t>();
  const std::int64_t limit = states * 10 / 29;
  ASSERT_LT(offloaded["peak_bytes"].get<std::int64_t>() + 64 * kMebibyte, limit);
  const ControlGroup group = ControlGroup::of_memory(limit);
  if (!group) GTEST_SKIP() << "this user may not make a memory cgroup below its own";
  const std::vector<std::string> saves{"--set", "train.save_last=true", "--set", "train.async_save=false"};
  std::vector<std::string> more = kStateOnDisk;
  more.insert(more.end(), saves.begin(), saves.end());
  const Outcome o = run_in(group, train(more));
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_LE(o.resident_bytes, limit);
  const std::vector<double> inside = losses_in(folder_ / "run");

  const Outcome refused = run_in(group, train(saves));
  EXPECT_EQ(refused.code, 3) << refused.out << refused.err;
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("are free (parameter"));
  EXPECT_THAT(refused.err, HasSubstr("--set memory.offload_optimizer=disk"));

  const Outcome outside = run_program(train({}));
  EXPECT_EQ(outside.code, 0) << outside.err;
  EXPECT_EQ(inside, losses_in(folder_ / "run"));
  EXPECT_GT(outside.resident_bytes, 2 * limit) << "the limit is one";
}

// With gradients and weights on the disk too, what stays does not grow with depth.
TEST_F(ResidentMemory, OfStatesFourTimesACgroupIsHeldToItByOffloadOfAllKinds) {
  std::ofstream(folder_ / "run.toml") << state_heavy_run(16);
  const nlohmann::json whole = plan({});
  std::int64_t states = 0;
  for (const char* tag : {"parameter", "gradient", "optimizer"})
    states += whole["tags"][tag]["peak"].get<std::int64_t>();
  const std::int64_t limit = states / 4;
  const std::vector<std::string> all_kinds{
      "--set", "memory.offload_optimizer=disk",  "--set", "layout.zero=3",
      "--set", "memory.offload_gradients=disk",  "--set", "memory.offload_window=4",
      "--set", "memory.offload_parameters=disk", "--set", "train.save_last=true"};
  ASSERT_LT(plan(all_kinds)["peak_bytes"].get<std::int64_t>() + 64 * kMebibyte, limit);
  const ControlGroup group = ControlGroup::of_memory(limit);
  if (!group) GTEST_SKIP() << "this user may not make a memory cgroup below its own";
  const Outcome o = run_in(group, train(all_kinds));
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_LE(o.resident_bytes, limit);
  const std::vector<double> inside = losses_in(folder_ / "run");

  const Outcome refused = run_in(group, train({}));
  EXPECT_EQ(refused.code, 3) << refused.out << refused.err;
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;

  EXPECT_EQ(run_program(train({})).code, 0);
  EXPECT_EQ(inside, losses_in(folder_ / "run"));
}

}  // namespace
}  // namespace lockstep::tests
