// Losses over vocabularies that ranks cut between them: rows that begin at packs and rows that do not, padding,
// gradients apart from the logits and over them.
#include <gtest/gtest.h>

#include "support/kernel_cases.h"
#include "support/split_loss_trial.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

struct Cut {
  std::int64_t vocabulary, part, parts;
};

class SplitLossOnTheGpu : public ::testing::TestWithParam<Cut> {};

TEST_P(SplitLossOnTheGpu, IsThatOfTheWholeInEveryType) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  const auto [vocabulary, part, parts] = GetParam();
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
  const std::unique_ptr<Stream> stream = make_stream(*memory, 1);
  SplitLossTrial trial{.vocabulary = vocabulary, .part = part, .parts = parts};
  for (const DType type : kFloatTypes) {
    trial.type = trial.to = type;
    EXPECT_EQ(try_split_loss(trial, *memory, *stream), "") << name_of(type);
  }
  trial.type = DType::f32;
  for (const DType to : {DType::bf16, DType::f16}) {
    trial.to = to;
    EXPECT_EQ(try_split_loss(trial, *memory, *stream), "") << "fp32 to " << name_of(to);
  }
}

// From less than a warp to rows of several tiles.
INSTANTIATE_TEST_SUITE_P(Of, SplitLossOnTheGpu,
                         ::testing::Values(Cut{507, 507, 1}, Cut{507, 127, 5}, Cut{13, 1, 13}, Cut{500, 128, 4},
                                           Cut{50257, 12576, 4}, Cut{50257, 25129, 2}, Cut{128256, 64128, 2}),
                         [](const auto& info) {
                           return fmt::format("{}_in_{}_of_{}", info.param.vocabulary, info.param.parts,
                                              info.param.part);
                         });

}  // namespace
}  // namespace lockstep::tests
