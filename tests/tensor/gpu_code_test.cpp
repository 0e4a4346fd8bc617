// Whether a build has code for a GPU is known before anything is run on it.
#include <gtest/gtest.h>

#include "tensor/cuda/device.h"

namespace lockstep::cuda {
namespace {

TEST(GpuCode, RunsWhereItWasMadeFor) {
  EXPECT_EQ(no_code_for(9, 0, "sm_90a"), "");
  EXPECT_EQ(no_code_for(8, 6, "sm_80"), "");        // the same generation, later
  EXPECT_EQ(no_code_for(12, 0, "compute_80"), "");  // translated by the driver
  EXPECT_EQ(no_code_for(8, 0, "sm_90a sm_80"), "");
}

TEST(GpuCode, IsRefusedElsewhereWithARemedy) {
  const std::string older = no_code_for(8, 0, "sm_90a");
  EXPECT_NE(older.find("8.0"), std::string::npos) << older;
  EXPECT_NE(older.find("-DLOCKSTEP_GPU=compute_80:sm_80"), std::string::npos) << older;
  EXPECT_NE(no_code_for(10, 0, "sm_90a"), "");  // code for one GPU alone is for no later one either
  EXPECT_NE(no_code_for(8, 0, "sm_86"), "");
  EXPECT_NE(no_code_for(9, 0, "sm_80"), "");
  EXPECT_NE(no_code_for(7, 5, "compute_80"), "");
}

TEST(GpuCode, Fp8IsRefusedBeforeThereWasAnyWithARemedy) {
  for (const auto& [major, minor] : {std::pair{8, 9}, {9, 0}, {10, 0}, {12, 0}}) EXPECT_EQ(no_fp8_on(major, minor), "");
  const std::string older = no_fp8_on(8, 6);
  EXPECT_NE(older.find("8.6"), std::string::npos) << older;
  EXPECT_NE(older.find("precision.compute=bf16"), std::string::npos) << older;
}

}  // namespace
}  // namespace lockstep::cuda
