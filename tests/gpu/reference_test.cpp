// The golden folders on the GPU: what transformers computed, to the tolerances of the cpu.
#include "train/reference.h"

#include <gtest/gtest.h>

#include "tensor/cuda/device.h"

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

INSTANTIATE_TEST_SUITE_P(All, GoldenOnTheGpu,
                         ::testing::Combine(::testing::Values("llama-tiny", "llama-tied-scaled", "llama-mha-8l",
                                                              "gpt2-tiny", "qwen2-tiny"),
                                            ::testing::Values(Precision::fp64, Precision::fp32, Precision::bf16)));

}  // namespace
}  // namespace lockstep::tests
