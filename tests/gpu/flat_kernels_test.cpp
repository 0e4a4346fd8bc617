// The kernels over flat buffers, and copies of heads, give the cpu's bits on the GPU: no device changes what an update,
// a norm, a sum or a rounding is. Of AdamW's, only what the bias corrections enter (pow) may differ.
#include <algorithm>

#include "support/case_names.h"
#include "support/case_run.h"
#include "support/devices.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

std::vector<int> flat_cases() {
  return cases_where([](const KernelCase& kernel) {
    constexpr std::string_view kFlat[] = {"add",        "cast",  "fill", "copy_heads", "norm_sum",
                                          "block_hash", "adamw", "sgd",  "tree_sum"};
    return std::ranges::find(kFlat, kernel.op) != std::end(kFlat);
  });
}

class FlatKernel : public ::testing::TestWithParam<int> {
 protected:
  struct Gpu {
    Ledger ledger;
    std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
    std::unique_ptr<Stream> stream = make_stream(*memory, 1);
  };
  static void SetUpTestSuite() {
    if (cuda::gpu_count() > 0) gpu_ = std::make_unique<Gpu>();
  }
  static void TearDownTestSuite() { gpu_.reset(); }
  void SetUp() override {
    if (!gpu_) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  static inline std::unique_ptr<Gpu> gpu_;
};

TEST_P(FlatKernel, GivesTheCpusBits) {
  const KernelCase& kernel = kernel_cases()[GetParam()];
  CpuDevice cpu;
  CaseRun here(kernel, cpu.memory()), there(kernel, *gpu_->memory);
  here.run(cpu.stream());
  there.run(*gpu_->stream);
  for (std::size_t n = 0; n < kernel.operands.size(); ++n) {
    const std::string& name = kernel.operands[n].name;
    if (kernel.op == "adamw" && (name == "master" || name == "weight")) continue;
    EXPECT_TRUE(here.bytes(static_cast<int>(n)) == there.bytes(static_cast<int>(n))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Case, FlatKernel, ::testing::ValuesIn(flat_cases()), case_name);

}  // namespace
}  // namespace lockstep::tests
