// Every kernel in every type computes what its contract says: the references' numbers, and nothing beside its outputs.
#include "support/case_names.h"
#include "support/case_run.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

class EveryKernel : public ::testing::TestWithParam<int> {
 protected:
  // One device for all cases: threads are started once, not thousands of times.
  static void SetUpTestSuite() { device_ = std::make_unique<CpuDevice>(); }
  static void TearDownTestSuite() { device_.reset(); }
  const KernelCase& kernel() const { return kernel_cases()[GetParam()]; }

  static inline std::unique_ptr<CpuDevice> device_;
};

// Errors are held to one rounding of the output plus those of a sum of the terms' size in the accumulator
// (host_tensor.h).
TEST_P(EveryKernel, ComputesWhatItsContractSaysAndWritesNothingElse) {
  CaseRun run(kernel(), device_->memory());
  run.run(device_->stream());
  EXPECT_EQ(run.trespass(), "");
  std::vector<HostTensor> want = run.given();
  if (kernel().reference) kernel().reference(want);
  for (int n = 0; n < static_cast<int>(want.size()); ++n) {
    if (kernel().operands[n].role == Role::in) continue;
    const HostTensor got = run.read(n);
    if (kernel().reference) {
      EXPECT_EQ(difference(got, want[n], accumulator_of(kernel().dtype)), "");
    } else {  // the values are open, but there must be some
      for (const double v : got.value) ASSERT_FALSE(std::isnan(v)) << got.name << " has elements that were not written";
    }
  }
}

TEST_P(EveryKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  CaseRun run(kernel(), device_->memory());
  run.run(device_->stream(1));
  const std::vector<std::byte> one = run.outputs();
  for (const int threads : {2, 3, 5}) {
    run.run(device_->stream(threads));
    EXPECT_TRUE(run.outputs() == one) << "with " << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Case, EveryKernel, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace lockstep::tests
