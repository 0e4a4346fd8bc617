// Projections that FP8 products do not fit are named before a run.
#include "spec/model/fp8_fit.h"

#include <gtest/gtest.h>

#include "spec/model/presets.h"

namespace lockstep {
namespace {

TEST(Fp8Fit, NamesEveryProjectionThatDoesNot) {
  ModelSpec spec = *preset("llama-1m");
  spec.width = 128;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_width = 32;
  spec.ffn_width = 352;
  EXPECT_EQ(left_in_bf16(spec, 64), "");
  spec.ffn_width = 344;  // twice which is a multiple of 16
  EXPECT_EQ(left_in_bf16(spec, 64),
            "computed in bf16, since fp8 needs multiples of 16: feed-forward's outputs (344 x 128)");
  spec.ffn_width = 341;
  spec.head_width = 10;
  EXPECT_EQ(left_in_bf16(spec, 64),
            "computed in bf16, since fp8 needs multiples of 16: attention's outputs (40 x 128), feed-forward's inputs "
            "(128 x 682), feed-forward's outputs (341 x 128)");
}

TEST(Fp8Fit, GoesByTheRanksPartsOfASplitLayer) {
  ModelSpec spec = *preset("llama-1m");
  spec.width = 128;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_width = 32;
  spec.ffn_width = 352;  // eleven times 32
  EXPECT_EQ(left_in_bf16(spec, 64, {.size = 2}), "");
  EXPECT_EQ(
      left_in_bf16(spec, 64, {.size = 4}),
      "computed in bf16, since fp8 needs multiples of 16 on each of 4 tp ranks: feed-forward's outputs (88 x 128)");
}

TEST(Fp8Fit, SaysWhenTheTokensOfAMicroBatchKeepAllInBf16) {
  const std::string line = left_in_bf16(*preset("llama-1m"), 24);
  EXPECT_NE(line.find("24 tokens"), std::string::npos) << line;
  EXPECT_NE(line.find("data.seq"), std::string::npos) << line;
}

}  // namespace
}  // namespace lockstep
