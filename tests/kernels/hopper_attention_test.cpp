// What Hopper's attention takes, and its workspace, are known from sizes alone.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/hopper_attention.h"

namespace lockstep::tests {
namespace {

constexpr AttentionSizes kGroupedQuery{.B = 8, .T = 2048, .S = 2048, .H = 32, .K = 8, .D = 64, .dtype = DType::bf16};

AttentionSizes multi_head(std::int64_t B, std::int64_t H, std::int64_t T, std::int64_t D) {
  return {.B = B, .T = T, .S = T, .H = H, .K = H, .D = D, .dtype = DType::bf16};
}

TEST(HopperAttention, TakesBf16OfItsWidths) {
  const auto takes = [](auto change) {
    AttentionSizes sizes = kGroupedQuery;
    change(sizes);
    return cuda::why_not_hopper(sizes) == nullptr;
  };
  EXPECT_TRUE(takes([](AttentionSizes&) {}));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.D = 128; }));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.T = s.S = 65; }));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.deterministic = false; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.dtype = DType::f16; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.dtype = DType::f32; }));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.causal = false; }));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.documents = true; }));
  EXPECT_TRUE(takes([](AttentionSizes& s) { s.S = 2 * s.T; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.S = 63; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.dropout = true; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.D = 80; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.T = s.S = 63; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.B = 0; }));
  EXPECT_FALSE(takes([](AttentionSizes& s) { s.B = std::int64_t{1} << 17; }));  // 2^33 rows
}

TEST(HopperAttention, ReservesWhatItsHeaderSays) {
  constexpr std::int64_t kLittle = 4 * 256;  // of rounding up
  for (const AttentionSizes& s : {multi_head(1, 32, 32768, 64), multi_head(3, 5, 201, 64), multi_head(2, 7, 1000, 128),
                                  multi_head(1, 1, 64, 64)}) {
    const std::int64_t queries = s.D == 64 ? 128 : 64, tiles = (s.T + queries - 1) / queries;
    const std::int64_t rows = s.B * s.H * tiles * queries;
    const std::int64_t needed = 4 * rows * s.D + 2 * 4 * rows + 4 * (2 * s.B * s.H * tiles + 1);
    const cuda::HopperReserve reserve = cuda::hopper_reserve(s);
    EXPECT_GE(reserve.total(), needed);
    EXPECT_LE(reserve.total(), needed + kLittle);
    AttentionSizes documents = s;
    documents.documents = true;
    EXPECT_GE(cuda::hopper_reserve(documents).total(), reserve.total() + 4 * s.B * tiles * queries);
    EXPECT_LE(cuda::hopper_reserve(documents).total(), reserve.total() + 4 * s.B * tiles * queries + kLittle);
    EXPECT_EQ(reserve.dq % kAlignment, 0);
    EXPECT_EQ(reserve.statistics % (2 * kAlignment), 0);
  }
}

TEST(HopperAttention, ReservesInStepWithTokens) {
  const std::int64_t once = cuda::hopper_reserve(multi_head(1, 32, 16384, 64)).total();
  const std::int64_t twice = cuda::hopper_reserve(multi_head(1, 32, 32768, 64)).total();
  EXPECT_NEAR(static_cast<double>(twice) / static_cast<double>(once), 2, 1e-3);
}

}  // namespace
}  // namespace lockstep::tests
