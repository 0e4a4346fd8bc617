// Masks that grow, of thread ranks that share a GPU: what they learn is what the serial program on the cpu learns
// (support/serial_sparsity.h).
#include <gtest/gtest.h>

#include "support/serial_sparsity.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

constexpr int kMaskedSteps = 12;

class SparsityOnTheGpu : public ::testing::TestWithParam<SparsityKind> {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

Replica::Options masked_run(const LayoutSpec& layout, const PrecisionSpec& precision, SparsityKind kind) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.ffn_width = 28;  // which 4 divides
  Replica::Options o = learning_options(spec, layout, precision);
  o.layout.grad_sync = LayoutSpec::usual_sync(layout.zero);
  o.sparsity = {.kind = kind, .share = 0.7, .begin = 1, .end = 7, .every = 3};  // masks before steps 4 and 7
  return o;
}

TEST_P(SparsityOnTheGpu, TeachesWhatTheSerialModelLearns) {
  const SparseLearned serial = learn_sparsely(masked_run({}, Precision::fp64, GetParam()), kMaskedSteps);
  for (const LayoutSpec& layout :
       {LayoutSpec{.micro = 2}, LayoutSpec{.dp = 3, .micro = 1}, LayoutSpec{.dp = 3, .micro = 2, .zero = 1},
        LayoutSpec{.dp = 2, .micro = 2, .zero = 3}}) {
    const Learned learned = learn(masked_run(layout, Precision::fp64, GetParam()), kMaskedSteps, {}, Device::cuda);
    expect_close(learned, serial.learned, 1e-9, to_text(layout));
    ASSERT_EQ(learned.weights().size(), serial.masked.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < serial.masked.size(); ++i) wrong += serial.masked[i] && learned.weights()[i] != 0;
    EXPECT_EQ(wrong, 0U) << to_text(layout) << ": the masks differ";
  }
}

// Masters apart from the weights that compute, which are packed too: the bits of one rank and of shards.
TEST_P(SparsityOnTheGpu, InBf16GivesTheSameBitsTwiceAndInShards) {
  const auto on_gpu = [&](const LayoutSpec& layout) {
    return learn(masked_run(layout, Precision::bf16, GetParam()), kMaskedSteps, {}, Device::cuda);
  };
  const Learned ddp = on_gpu({.dp = 3, .micro = 1});
  expect_equal(on_gpu({.dp = 3, .micro = 1}), ddp, "again");
  expect_equal(on_gpu({.dp = 3, .micro = 1, .zero = 1}), ddp, "ZeRO 1");
}

INSTANTIATE_TEST_SUITE_P(Kinds, SparsityOnTheGpu,
                         ::testing::Values(SparsityKind::unstructured, SparsityKind::two_of_four),
                         [](const auto& info) {
                           return info.param == SparsityKind::unstructured ? "unstructured" : "TwoOfFour";
                         });

}  // namespace
}  // namespace lockstep::tests
