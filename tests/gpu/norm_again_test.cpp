// On the GPU too, backward gives a norm's output again with the bits of forward, whose rows are shared out otherwise.
#include "support/norm_again.h"

#include <gtest/gtest.h>

#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

TEST(NormAgainOnTheGpu, HasTheBitsOfForward) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
  const std::unique_ptr<Stream> stream = make_stream(*memory, 1);
  for (const KernelCase& twice : norms_again()) EXPECT_EQ(difference_of_norms(twice, *memory, *stream), "");
}

}  // namespace
}  // namespace lockstep::tests
