// Compressed gradients: what any number of ranks learns with them is what a plain serial program learns
// (support/serial_compression.h).
#include <gtest/gtest.h>

#include "support/serial_compression.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kCompressedSteps = 20;

Compression compression(const std::string& text) { return Compression::parse(text).value(); }

Replica::Options compressed_options(const ModelSpec& spec, const LayoutSpec& layout, const std::string& form,
                                    bool feedback = true) {
  Replica::Options o = learning_options(spec, layout, Precision::fp64);
  o.sync.compress = compression(form);
  o.sync.feedback = feedback;
  return o;
}

// 24 samples, of which 5 and 7 ranks take unequal parts; some ranks work in micro-batches.
LayoutSpec compressed_layout(int ranks, std::int64_t zero = 0) {
  LayoutSpec layout{.dp = ranks, .micro = ranks % 2 == 0 ? 2 : 1, .zero = zero};
  if (kLearningSamples % (ranks * layout.micro) != 0) layout.uneven = Switch::on;
  return layout;
}

void expect_gradients_as_serial(const Replica::Options& o) {
  const Learned serial = learn_serially(o, kCompressedSteps);
  EXPECT_GT(serial.norms[0], o.optimizer.clip) << "clipping is to be active";
  const std::string what =
      fmt::format("{}, {}, feedback {}", to_text(o.layout), o.sync.compress.text(), o.sync.feedback);
  const Learned learned = learn(o, kCompressedSteps);
  expect_close(learned, serial, 1e-11, what);
  if (o.layout.tp > 1) return;  // of the first rank's parts of layers
  ASSERT_EQ(learned.compression_errors.size(), serial.compression_errors.size()) << what;
  for (std::size_t step = 0; step < serial.compression_errors.size(); ++step)
    EXPECT_NEAR(learned.compression_errors[step], serial.compression_errors[step],
                1e-9 * serial.compression_errors[step])
        << what << ", step " << step;
}

class CompressedGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(CompressedGradients, TeachManyRanksWhatTheSerialModelLearns) {
  for (int ranks = 2; ranks <= 8; ++ranks)
    expect_gradients_as_serial(compressed_options(tiny_specs()[0].spec, compressed_layout(ranks), GetParam()));
}

TEST_P(CompressedGradients, TeachEveryFamilyWhatTheSerialModelLearns) {
  for (const NamedSpec& model : tiny_specs()) {
    if (model.spec.dropout > 0) continue;  // whose masks are of samples of the global batch
    // GPT-2's key bias has a gradient that is rounding alone (train/key_bias.h), and one bit sends its sign.
    if (model.spec.family == Family::gpt2 && GetParam() == "onebit") continue;
    SCOPED_TRACE(model.name);
    expect_gradients_as_serial(compressed_options(model.spec, compressed_layout(3), GetParam()));
  }
}

TEST_P(CompressedGradients, LeaveNothingBehindWithoutFeedback) {
  expect_gradients_as_serial(compressed_options(tiny_specs()[0].spec, compressed_layout(3), GetParam(), false));
}

// Stages 1 to 3, gradients summed per step and per micro-batch: residuals of all micro-batches are one.
TEST_P(CompressedGradients, OfShardsTeachWhatTheSerialModelLearns) {
  for (const std::int64_t zero : {1, 2, 3})
    for (const int ranks : {2, 3, 8}) {
      LayoutSpec layout = compressed_layout(ranks, zero);
      layout.grad_sync = LayoutSpec::usual_sync(zero);
      expect_gradients_as_serial(compressed_options(tiny_specs()[0].spec, layout, GetParam()));
    }
}

TEST_P(CompressedGradients, SummedAfterEveryMicroBatchTeachWhatTheSerialModelLearns) {
  LayoutSpec layout{.dp = 3, .micro = 2};
  layout.grad_sync = GradSync::micro;
  expect_gradients_as_serial(compressed_options(tiny_specs()[0].spec, layout, GetParam()));
}

TEST_P(CompressedGradients, OfStagesTeachWhatTheSerialModelLearns) {
  Replica::Options o = compressed_options(tiny_specs()[0].spec, {.dp = 3, .micro = 4}, GetParam());
  const Learned serial = learn_serially(o, kCompressedSteps);
  o.layout.pp = 2;
  expect_close(learn(o, kCompressedSteps), serial, 1e-11, "two stages");
}

// Of a layer that ranks have in parts, each compresses its own; what all of them have is compressed alike.
TEST_P(CompressedGradients, OfTensorParallelRanksTeachWhatTheSerialModelLearns) {
  if (GetParam() == "onebit") GTEST_SKIP() << "is refused: padding would get a gradient";
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[6]}) {
    for (LayoutSpec layout :
         {LayoutSpec{.dp = 2, .tp = 3, .sp = Switch::on, .micro = 2}, LayoutSpec{.dp = 3, .tp = 3, .sp = Switch::off},
          LayoutSpec{.dp = 2, .pp = 2, .tp = 3, .micro = 2}, LayoutSpec{.dp = 2, .tp = 3, .micro = 2, .zero = 1},
          LayoutSpec{.dp = 2, .tp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::micro}}) {
      if (model.spec.tied && layout.passes_on()) continue;  // is refused
      expect_gradients_as_serial(compressed_options(model.spec, layout, GetParam()));
    }
  }
}

// Each has the gradient of its part of the tokens, and a residual of its own.
TEST_P(CompressedGradients, OfContextParallelRanksTeachWhatTheSerialModelLearns) {
  for (LayoutSpec layout : {LayoutSpec{.cp = 2, .micro = 2}, LayoutSpec{.dp = 2, .cp = 3, .micro = 2},
                            LayoutSpec{.dp = 2, .cp = 2, .cp_order = CpOrder::plain, .micro = 1, .zero = 1},
                            LayoutSpec{.dp = 2, .cp = 2, .micro = 2, .zero = 3, .grad_sync = GradSync::micro}}) {
    Replica::Options o = compressed_options(tiny_specs()[0].spec, layout, GetParam());
    o.T = 12;  // which cp divides
    expect_gradients_as_serial(o);
  }
}

// Each parameter is compressed by itself.
TEST_P(CompressedGradients, DoNotDependOnBucketsOrOverlap) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[1]}) {
    LayoutSpec layout{.dp = 5, .micro = 2, .bucket = 0, .uneven = Switch::on};
    Replica::Options o = compressed_options(model.spec, layout, GetParam());
    o.precision = Precision::fp32;
    const Learned each_parameter = learn(o, 5);
    o.layout.bucket = 25;
    expect_equal(learn(o, 5), each_parameter, "one bucket");
    o.layout.overlap = Switch::off;
    expect_equal(learn(o, 5), each_parameter, "one bucket, without overlap");
  }
}

// Weights in int8 blocks, for both passes and every micro-batch; alone and with gradients in int8 too.
TEST(CompressedWeights, TeachWhatTheSerialModelLearns) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[1], tiny_specs()[4]})
    for (const int ranks : {2, 3, 8})
      for (const char* gradients : {"none", "int8"}) {
        if (model.spec.tied && std::string_view(gradients) != "none") continue;  // is refused
        LayoutSpec layout = compressed_layout(ranks, 3);
        layout.grad_sync = GradSync::micro;
        Replica::Options o = compressed_options(model.spec, layout, gradients);
        o.sync.compress_weights = compression("int8");
        SCOPED_TRACE(model.name);
        expect_gradients_as_serial(o);
      }
}

TEST(CompressedWeights, OfTensorParallelRanksTeachWhatTheSerialModelLearns) {
  LayoutSpec layout{.dp = 2, .tp = 3, .micro = 2, .zero = 3, .grad_sync = GradSync::micro};
  Replica::Options o = compressed_options(tiny_specs()[0].spec, layout, "none");
  o.sync.compress_weights = compression("int8");
  expect_gradients_as_serial(o);
}

TEST(CompressedWeights, OfContextParallelRanksTeachWhatTheSerialModelLearns) {
  Replica::Options o = compressed_options(
      tiny_specs()[0].spec, {.dp = 2, .cp = 2, .micro = 2, .zero = 3, .grad_sync = GradSync::micro}, "int8");
  o.T = 12;
  o.sync.compress_weights = compression("int8");
  expect_gradients_as_serial(o);
}

TEST(CompressedWeights, DoNotDependOnBundlesPrefetchOrOverlap) {
  LayoutSpec layout = compressed_layout(3, 3);
  layout.grad_sync = GradSync::micro;
  Replica::Options o = compressed_options(tiny_specs()[1].spec, layout, "none");
  o.precision = Precision::fp32;
  o.sync.compress_weights = compression("int8");
  const Learned usual = learn(o, 5);
  Replica::Options other = o;
  other.layout.overlap = Switch::off;
  expect_equal(learn(other, 5), usual, "without overlap");
  other = o;
  other.layout.prefetch = 3;
  expect_equal(learn(other, 5), usual, "three units ahead");
  other = o;
  other.layout.wrap = WrapRule::of_blocks({2});
  expect_equal(learn(other, 5), usual, "two blocks in one call");
  other = o;
  other.layout.reshard = Reshard::never;
  expect_equal(learn(other, 5), usual, "kept until backward");
}

INSTANTIATE_TEST_SUITE_P(Forms, CompressedGradients,
                         ::testing::Values("topk:0.01", "topk:0.3", "bf16", "int8", "onebit"), [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return c == ':' || c == '.'; });
                           return name;
                         });

}  // namespace
}  // namespace lockstep::tests
