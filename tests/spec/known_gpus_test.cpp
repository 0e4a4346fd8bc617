// GPUs are known by what their driver calls them.
#include "spec/machine/known_gpus.h"

#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

TEST(KnownGpus, AreFoundByTheNameOfTheDriver) {
  ASSERT_NE(find_gpu("NVIDIA H200"), nullptr);
  EXPECT_EQ(find_gpu("NVIDIA H200")->name, "H200");
  EXPECT_EQ(find_gpu("NVIDIA H100 80GB HBM3")->narrow, 989.4e12);
  EXPECT_EQ(find_gpu("NVIDIA H100 PCIe")->narrow, 756e12);
  EXPECT_EQ(find_gpu("NVIDIA A100-SXM4-80GB")->single, 19.5e12);
  EXPECT_EQ(find_gpu("NVIDIA GeForce RTX 4090"), nullptr);
  EXPECT_EQ(find_gpu(""), nullptr);
}

}  // namespace
}  // namespace lockstep::tests
