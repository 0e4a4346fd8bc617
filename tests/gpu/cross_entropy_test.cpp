// Losses over real vocabularies: every way a row is shared out among blocks, aligned or not, gradients apart from the
// logits and over them.
#include <gtest/gtest.h>

#include "support/loss_trial.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

class LossOnTheGpu : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(LossOnTheGpu, IsTheSameInPlace) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
  const std::unique_ptr<Stream> stream = make_stream(*memory, 1);
  for (const DType to : {DType::bf16, DType::f16})
    for (const bool strided : {false, true}) {
      const LossTrial trial{.vocabulary = GetParam(), .to = to, .strided = strided, .outside = true};
      EXPECT_EQ(try_loss(trial, *memory, *stream), "") << name_of(to) << (strided ? ", strided" : "");
    }
}

// From one block of 128 threads to eight of 1024, the largest row they hold, and what is too long for them.
INSTANTIATE_TEST_SUITE_P(Of, LossOnTheGpu,
                         ::testing::Values(7, 257, 1000, 4096, 4100, 16385, 32000, 49152, 50257, 128256, 151936, 200000,
                                           262144, 262145, 270000),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace lockstep::tests
