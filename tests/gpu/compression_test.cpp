// Compressed gradients, weights and activations, and the embedding's gradient by rows, of thread ranks that share a
// GPU: what they learn is what the serial program on the cpu learns (support/serial_compression.h).
#include <gtest/gtest.h>

#include "support/serial_compression.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

constexpr int kCodedSteps = 8;
// The gpu's sums have another order than the cpu's, and steps carry what rounding makes of that. A code of other bits
// moves a gradient by a thousandth and more.
constexpr double kGpuRounding = 1e-9;

class CompressionOnTheGpu : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

void expect_as_serial_on_gpu(const Replica::Options& o) {
  const std::string what =
      fmt::format("{}, gradients {}, weights {}, activations {}", to_text(o.layout), o.sync.compress.text(),
                  o.sync.compress_weights.text(), o.sync.compress_activations.text());
  expect_close(learn(o, kCodedSteps, {}, Device::cuda), learn_serially(o, kCodedSteps), kGpuRounding, what);
}

Replica::Options coded_run(const LayoutSpec& layout) {
  return learning_options(tiny_specs()[0].spec, layout, Precision::fp64);
}

TEST_P(CompressionOnTheGpu, OfGradientsTeachesWhatTheSerialModelLearns) {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    Replica::Options o = coded_run({.dp = 3, .micro = 2, .zero = zero, .grad_sync = LayoutSpec::usual_sync(zero)});
    o.sync.compress = Compression::parse(GetParam()).value();
    expect_as_serial_on_gpu(o);
  }
}

TEST_P(CompressionOnTheGpu, OfActivationsTeachesWhatTheSerialModelLearns) {
  Replica::Options o = coded_run({.pp = 2, .micro = 4});
  o.spec.layers = 4;
  o.sync.compress_activations = Compression::parse(GetParam()).value();
  expect_as_serial_on_gpu(o);
}

INSTANTIATE_TEST_SUITE_P(Forms, CompressionOnTheGpu, ::testing::Values("bf16", "int8", "onebit", "topk:0.1"),
                         [](const auto& info) { return info.param.substr(0, info.param.find(':')); });

class CompressedOnTheGpu : public CompressionOnTheGpu {};

TEST_P(CompressedOnTheGpu, WeightsTeachWhatTheSerialModelLearns) {
  for (const char* gradients : {"none", "int8"}) {
    Replica::Options o = coded_run({.dp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::micro});
    o.sync.compress_weights = Compression::parse(GetParam()).value();
    o.sync.compress = Compression::parse(gradients).value();
    expect_as_serial_on_gpu(o);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CompressedOnTheGpu, ::testing::Values("int8"),
                         [](const auto& info) { return info.param; });

class EmbeddingRowsOnTheGpu : public CompressionOnTheGpu {};

// To the bit of all rows, in types whose rows are of 2, 4 and 8 bytes an element.
TEST_F(EmbeddingRowsOnTheGpu, ChangeNoBit) {
  for (const PrecisionSpec& precision : {PrecisionSpec(Precision::fp32), PrecisionSpec(Precision::fp64),
                                         PrecisionSpec(Precision::bf16, StateType::bf16)})
    for (const std::int64_t vocabulary : {997, 301}) {
      Replica::Options o = learning_options(tiny_specs()[0].spec, {.dp = 3, .micro = 2}, precision);
      o.spec.vocabulary = vocabulary;
      o.spec.tied = false;
      const Learned dense = learn(o, 3, {}, Device::cuda);
      for (const EmbeddingGradient form : {EmbeddingGradient::rows, EmbeddingGradient::automatic}) {
        o.layout.embedding_gradient = form;
        expect_equal(learn(o, 3, {}, Device::cuda), dense, fmt::format("{} of {}", to_text(o.layout), vocabulary));
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
