// Every kernel on the GPU computes what its contract says: the same table of cases as on the cpu, against the same
// references, from poisoned outputs, and the same bits each time.
#include "support/case_names.h"
#include "support/case_run.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

class EveryKernelOnTheGpu : public ::testing::TestWithParam<int> {
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
  const KernelCase& kernel() const { return kernel_cases()[GetParam()]; }

  static inline std::unique_ptr<Gpu> gpu_;
};

TEST_P(EveryKernelOnTheGpu, ComputesWhatItsContractSaysAndWritesNothingElse) {
  CaseRun run(kernel(), *gpu_->memory);
  run.run(*gpu_->stream);
  EXPECT_EQ(run.trespass(), "");
  std::vector<HostTensor> want = run.given();
  if (kernel().reference) kernel().reference(want);
  for (int n = 0; n < static_cast<int>(want.size()); ++n) {
    if (kernel().operands[n].role == Role::in) continue;
    const HostTensor got = run.read(n);
    if (kernel().reference) {
      EXPECT_EQ(difference(got, want[n], accumulator_of(kernel().dtype), true), "");
    } else {
      for (const double v : got.value) ASSERT_FALSE(std::isnan(v)) << got.name << " has elements that were not written";
    }
  }
  const std::vector<std::byte> first = run.outputs();
  run.run(*gpu_->stream);
  EXPECT_TRUE(run.outputs() == first) << "another run, other bits";
}

INSTANTIATE_TEST_SUITE_P(Case, EveryKernelOnTheGpu, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace lockstep::tests
