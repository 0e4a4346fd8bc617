// The golden folders on the GPU: what transformers computed, to the tolerances of the cpu.
#include "train/reference.h"

#include <gtest/gtest.h>

#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "train/layout_trial.h"

namespace lockstep::tests {
namespace {

class GoldenOnTheGpu : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {};

TEST_P(GoldenOnTheGpu, IsWithinTolerance) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  const auto& [name, precision] = GetParam();
  const ReferenceReport report = verify_reference(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + name,
                                                  {.precision = precision, .device = Device::cuda});
  for (const ReferenceItem& item : report.items)
    EXPECT_TRUE(item.ok()) << item.name << ": " << item.error << " beyond " << item.tolerance;
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenOnTheGpu,
    ::testing::Combine(::testing::Values("llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny", "qwen2-tiny"),
                       ::testing::Values(Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16)));

// Ranks that are threads and share the GPU, in every stage of ZeRO, and where they cut layers between them.
TEST_P(GoldenOnTheGpu, IsWithinToleranceHoweverRanksHoldIt) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  const auto& [name, precision] = GetParam();
  for (const LayoutSpec& layout : {LayoutSpec{.tp = 2},
                                   {.tp = 2, .sp = Switch::off},
                                   {.tp = 4},
                                   {.dp = 2, .tp = 2, .micro = 2, .zero = 3},
                                   {.pp = 2, .micro = 2},
                                   {.pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 4},
                                   {.pp = 2, .schedule = ScheduleKind::zb_v, .chunks = 2, .micro = 2},
                                   {.dp = 2, .pp = 2, .micro = 2, .zero = 3},
                                   {.pp = 2, .tp = 2, .micro = 2},
                                   {.cp = 2},
                                   {.cp = 4, .cp_order = CpOrder::plain},
                                   {.cp = 2, .cp_kind = kUlysses},
                                   {.cp = 4, .cp_kind = CpKind::of_factors(2, 2)},
                                   {.dp = 2, .cp = 2, .zero = 3},
                                   {.pp = 2, .cp = 2, .tp = 2, .micro = 2},
                                   {.dp = 2, .pp = 2, .cp = 2, .micro = 2, .zero = 3},
                                   {.dp = 3, .zero = 1, .uneven = Switch::on},
                                   {.dp = 2, .micro = 2, .zero = 2},
                                   {.dp = 2, .micro = 2, .zero = 3},
                                   {.dp = 4, .zero = 3, .reshard = Reshard::never, .shard = 2}}) {
    const ReferenceReport report = verify_reference(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + name,
                                                    {.precision = precision, .device = Device::cuda, .layout = layout});
    for (const ReferenceItem& item : report.items)
      EXPECT_TRUE(item.ok()) << to_text(layout) << ": " << item.name << ": " << item.error << " beyond "
                             << item.tolerance;
  }
}

// A small run on the GPU, of so many tokens and samples.
RunSpec gpu_run(std::int64_t seq, std::int64_t batch) {
  RunSpec run;
  run.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  run.data.seq = seq;
  run.train.global_batch = batch;
  run.run.device = RunDevice::cuda;
  return run;
}

TEST(ZeroOnTheGpu, LearnsExactlyWhatDdpLearns) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  RunSpec run = gpu_run(8, 24);
  run.model = tiny_specs()[1].spec;
  run.optimizer.clip = 0.05;
  for (const GradSync sync : {GradSync::step, GradSync::micro}) {
    std::vector<LayoutSpec> layouts;
    for (const int zero : {0, 1, 2, 3}) layouts.push_back({.dp = 4, .micro = 3, .zero = zero, .grad_sync = sync});
    for (const int zero : {1, 3}) layouts.push_back({.dp = 4, .micro = 3, .zero = zero, .grad_sync = sync, .shard = 2});
    layouts.push_back({.dp = 4, .micro = 3, .zero = 3, .grad_sync = sync, .overlap = Switch::off});
    const LayoutReport report = compare_layouts(run, layouts, {.steps = 3, .exact = true});
    for (const LayoutVerdict& verdict : report.verdicts)
      EXPECT_FALSE(verdict.first) << to_text(verdict.layout) << ": " << verdict.first->what;
  }
}

// Messages in chunks beside products, or one after the other: the same bits.
TEST(TensorParallelOnTheGpu, LearnsTheSameBitsWithAndWithoutOverlap) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  RunSpec run = gpu_run(12, 8);
  run.model = tiny_specs()[6].spec;
  for (const std::int64_t tp : {2, 3})
    for (const Switch sp : {Switch::off, Switch::on}) {
      const LayoutReport report =
          compare_layouts(run, {{.dp = 2, .tp = tp, .sp = sp}, {.dp = 2, .tp = tp, .sp = sp, .overlap = Switch::off}},
                          {.steps = 3, .exact = true});
      for (const LayoutVerdict& verdict : report.verdicts)
        EXPECT_FALSE(verdict.first) << to_text(verdict.layout) << ": " << verdict.first->what;
    }
}

// Four and eight ranks over all axes, against one rank: fp32 to rounding, bf16 to its own; and no bit by overlap.
TEST(MeshOnTheGpu, LearnsWhatOneRankLearns) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  RunSpec run = gpu_run(32, 8);
  std::vector<LayoutSpec> layouts{{.dp = 1}};
  for (const char* text : {"cp=4", "cp=4,cp_order=plain", "cp=4,cp_kind=ulysses", "cp=4,cp_kind=2x2", "cp=2,tp=2",
                           "dp=2,cp=2,zero=3", "pp=2,cp=2,micro=4,schedule=zb-v", "cp=8", "dp=2,cp=2,tp=2,zero=2",
                           "dp=2,pp=2,cp=2,micro=2,zero=3", "pp=2,cp=2,tp=2,micro=2,schedule=zb-h1"})
    layouts.push_back(parse_layout(text));
  for (const std::size_t model : {8, 9, 13, 14}) {  // eight heads: untied, tied, with normed queries, GPT-2
    run.model = cut_specs()[model].spec;
    run.model.layers = 5;
    run.model.init_std = 0.05;
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      run.precision = precision;
      for (const LayoutVerdict& verdict : compare_layouts(run, layouts, {.steps = 3}).verdicts) {
        const double limit = precision == Precision::fp32 ? 1e-5 : 5e-3;
        EXPECT_LE(verdict.loss, limit) << cut_specs()[model].name << ", " << to_text(verdict.layout);
        EXPECT_LE(verdict.norm, 10 * limit) << cut_specs()[model].name << ", " << to_text(verdict.layout);
      }
    }
    run.precision = Precision::fp32;
    for (const CpKind& kind : {kRing, kUlysses, CpKind::of_factors(2, 2)}) {
      LayoutSpec on{.cp = 4}, off{.cp = 4, .overlap = Switch::off};
      on.cp_kind = off.cp_kind = kind;
      const LayoutReport report = compare_layouts(run, {on, off}, {.steps = 3, .exact = true});
      EXPECT_FALSE(report.verdicts[0].first) << kind.text() << ": " << report.verdicts[0].first->what;
    }
  }
}

// Whatever the schedule, and as one rank does.
TEST(PipelineParallelOnTheGpu, LearnsTheBitsOfOneRank) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  RunSpec run = gpu_run(8, 8);
  for (const std::size_t model : {0, 1, 6}) {  // untied, tied, with learned positions
    run.model = tiny_specs()[model].spec;
    run.model.layers = 5;
    std::vector<LayoutSpec> layouts{{.micro = 4}};
    for (const ScheduleKind kind : kScheduleKinds)
      for (const Switch overlap : {Switch::on, Switch::off})
        layouts.push_back({.pp = 3, .schedule = kind, .chunks = usual_chunks(kind), .micro = 4, .overlap = overlap});
    const LayoutReport report = compare_layouts(run, layouts, {.steps = 3, .exact = true});
    for (const LayoutVerdict& verdict : report.verdicts)
      EXPECT_FALSE(verdict.first) << to_text(verdict.layout) << ": " << verdict.first->what;
  }
}

}  // namespace
}  // namespace lockstep::tests
