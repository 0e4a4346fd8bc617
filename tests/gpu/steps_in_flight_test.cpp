// Steps under way on the GPU while the host begins the next: what the loop records, saves and learns is what it does
// one after the other.
#include "support/steps_ahead_claims.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

class LoopAheadOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

TEST_F(LoopAheadOnTheGpu, RecordsSavesAndLearnsWhatStepsInTurnDo) { expect_ahead_equals_in_turn(RunDevice::cuda); }
TEST_F(LoopAheadOnTheGpu, ABadValueStopsOrIsSkippedWithAStepBegunAfterIt) { expect_bad_values_ahead(RunDevice::cuda); }
TEST_F(LoopAheadOnTheGpu, AnOverflowIsSkippedAndHalvesTheScaleOfAStepThatWasUnderWay) {
  expect_overflow_ahead(RunDevice::cuda);
}
TEST_F(LoopAheadOnTheGpu, EndsWithWhatWasBegunWhenItIsToStop) { expect_stop_ahead(RunDevice::cuda); }

}  // namespace
}  // namespace lockstep::tests
