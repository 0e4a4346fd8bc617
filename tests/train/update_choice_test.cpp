// Offloaded state is updated where that is predicted to be faster, and the run file says where.
#include "train/update_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "spec/run/run_toml.h"

namespace lockstep::tests {
namespace {

RunSpec run_to_choose_for(const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all{"run.device=cuda", "memory.offload_optimizer=host", "precision.compute=bf16"};
  all.insert(all.end(), sets.begin(), sets.end());
  return parse_run_toml("[model]\npreset = \"llama-1m\"\n[data]\nexample = true\n", "run", "/", all);
}

// By hand: bf16 with fp32 gradients, masters and moments.
TEST(UpdateChoice, PredictsTheSlowestPartOfEachWay) {
  const RunSpec spec = run_to_choose_for();
  const UpdateSeconds link = update_seconds(spec, {.elements_per_s = 1e9, .up_per_s = 10e9, .down_per_s = 5e9});
  EXPECT_DOUBLE_EQ(link.device, 12 / 5e9);
  EXPECT_DOUBLE_EQ(link.host, 1e-9);
  EXPECT_EQ(link.faster(), OffloadUpdate::host);
  const UpdateSeconds cores = update_seconds(spec, {.elements_per_s = 1e8, .up_per_s = 50e9, .down_per_s = 50e9});
  EXPECT_DOUBLE_EQ(cores.device, 12 / 50e9);
  EXPECT_DOUBLE_EQ(cores.host, 1e-8);
  EXPECT_EQ(cores.faster(), OffloadUpdate::device);
  const UpdateSeconds slow = update_seconds(spec, {.elements_per_s = 1e12, .up_per_s = 1e9, .down_per_s = 4e9});
  EXPECT_DOUBLE_EQ(slow.host, 2 / 1e9) << "weights that go";
  EXPECT_DOUBLE_EQ(update_seconds(spec, {.elements_per_s = 1e12, .up_per_s = 9e9, .down_per_s = 1e9}).host, 4 / 1e9);
}

// Weights that are masters come with the gradient, and no master is moved beside the moments.
TEST(UpdateChoice, CountsWhatIsOffloaded) {
  const UpdateRates rates{.elements_per_s = 1e12, .up_per_s = 1e9, .down_per_s = 1e9};
  const UpdateSeconds fp32 = update_seconds(run_to_choose_for({"precision.compute=fp32"}), rates);
  EXPECT_DOUBLE_EQ(fp32.device, 8e-9);
  EXPECT_DOUBLE_EQ(fp32.host, 8e-9);
  const UpdateSeconds small = update_seconds(
      run_to_choose_for({"precision.master=bf16", "precision.moments=bf16", "precision.gradients=bf16"}), rates);
  EXPECT_DOUBLE_EQ(small.device, 4e-9);
  EXPECT_DOUBLE_EQ(small.host, 4e-9);
  const UpdateSeconds sgd = update_seconds(run_to_choose_for({"optim.name=sgd", "optim.momentum=0.9"}), rates);
  EXPECT_DOUBLE_EQ(sgd.device, 8e-9);
}

// Two ranks that would choose otherwise.
TEST(UpdateChoice, IsTheSameOnAllRanks) {
  run_ranks(2, [](std::unique_ptr<Communicator> comm) {
    const UpdateSeconds mine = comm->rank() == 0 ? UpdateSeconds{.device = 1, .host = 2} : UpdateSeconds{5, 3};
    const UpdateSeconds all = agreed_seconds(mine, comm.get());
    EXPECT_EQ(all.device, 3);
    EXPECT_EQ(all.host, 2.5);
    EXPECT_EQ(all.faster(), OffloadUpdate::host);
  });
}

// Between two memories of the host here.
TEST(UpdateChoice, IsWrittenIntoTheResolvedRunFileAndNotMadeAgain) {
  RunSpec spec = run_to_choose_for();
  EXPECT_THAT(to_toml(spec), ::testing::HasSubstr("offload_update = \"auto\""));
  const auto why = choose_update(spec, Device::cpu, 1, nullptr);
  ASSERT_TRUE(why);
  EXPECT_NE(spec.memory.offload_update, OffloadUpdate::choose);
  const std::string chosen(name_of(spec.memory.offload_update));
  EXPECT_THAT(*why, ::testing::StartsWith("memory.offload_update=\"" + chosen + "\""));
  RunSpec again = parse_run_toml(to_toml(spec), "resolved", "/");
  EXPECT_EQ(again.memory.offload_update, spec.memory.offload_update);
  EXPECT_FALSE(choose_update(again, Device::cpu, 1, nullptr));
  RunSpec resident = parse_run_toml("[model]\npreset = \"llama-1m\"\n[data]\nexample = true\n", "run", "/");
  EXPECT_FALSE(choose_update(resident, Device::cpu, 1, nullptr));
}

}  // namespace
}  // namespace lockstep::tests
